package selinux

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/selinux/go-selinux"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var options = &runtime.SELinuxOption{User: "system_u", Role: "system_r", Type: "container_t", Level: "s0:c1,c2"}

func TestWords(t *testing.T) {
	if got := words(options); !slices.Equal(got, []string{"user:system_u", "role:system_r", "type:container_t", "level:s0:c1,c2"}) {
		t.Errorf("%q", got)
	}
	if got := words(nil); got != nil {
		t.Errorf("%q", got)
	}
}

func TestMountOption(t *testing.T) {
	if got := MountOption("system_u:object_r:container_file_t:s0:c1,c2"); got != `context="system_u:object_r:container_file_t:s0:c1,c2"` {
		t.Errorf("%q", got)
	}
	if got := MountOption(""); got != "" {
		t.Errorf("%q", got)
	}
}

// Labels that are off are empty, whatever is asked for, and touch nothing.
func TestOff(t *testing.T) {
	var said bytes.Buffer
	l := New(false, slog.New(slog.NewTextHandler(&said, nil)))
	if said.Len() > 0 {
		t.Errorf("said %q", said.String())
	}
	checkOff(t, l)
	if selinux.GetEnabled() {
		return
	}
	l = New(true, slog.New(slog.NewTextHandler(&said, nil)))
	if !strings.Contains(said.String(), "SELinux") {
		t.Errorf("said %q", said.String())
	}
	checkOff(t, l)
}

func checkOff(t *testing.T, l *Labels) {
	t.Helper()
	if p, err := l.Pod(options); p != "" || err != nil {
		t.Errorf("pod: %q, %v", p, err)
	}
	if p, m, own, err := l.Container(options, ""); p != "" || m != "" || own || err != nil {
		t.Errorf("container: %q, %q, %v, %v", p, m, own, err)
	}
	if err := l.Relabel("/nowhere/at/all", "label"); err != nil {
		t.Error(err)
	}
	l.Keep("label")
	l.Release("label")
}

// On a kernel with SELinux no two pods share a level, and a pod's containers have its own.
func TestOn(t *testing.T) {
	if !selinux.GetEnabled() {
		t.Skip("the kernel has no SELinux")
	}
	l := New(true, slog.New(slog.DiscardHandler))
	one, err := l.Pod(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release(one)
	two, err := l.Pod(nil)
	if err != nil || one == two || one == "" {
		t.Errorf("%q, %q, %v", one, two, err)
	}
	l.Release(two)
	process, mount, own, err := l.Container(nil, one)
	if err != nil || own || process != one || !strings.HasSuffix(mount, one[strings.LastIndex(one, ":s")+1:]) {
		t.Errorf("container of %q: %q, %q, %v, %v", one, process, mount, own, err)
	}
	process, _, own, err = l.Container(&runtime.SELinuxOption{Level: "s0:c7,c9"}, one)
	if err != nil || !own || !strings.HasSuffix(process, ":s0:c7,c9") {
		t.Errorf("container with options: %q, %v, %v", process, own, err)
	}
	l.Release(process)
}
