package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/tests/disk"
)

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadTask(dir); !errdefs.IsNotFound(err) {
		t.Errorf("no task: %v", err)
	}
	if _, ok := ReadExit(dir); ok {
		t.Error("an exit from nowhere")
	}
	if pid := ReadPid(dir); pid != 0 {
		t.Errorf("pid %d from nowhere", pid)
	}
	task := Task{Engine: "runc", Binary: "crun", Root: "/r", SystemdCgroup: true, Cgroup: "/a/b"}
	exit := api.Exit{Code: 137, At: time.Now().UTC().Round(0), Message: "m", OOMKilled: true}
	for _, err := range []error{WriteTask(dir, task), WritePid(dir, 42), WriteExit(dir, exit)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ReadTask(dir); err != nil || !reflect.DeepEqual(got, task) {
		t.Errorf("task %+v, %v", got, err)
	}
	if got := ReadPid(dir); got != 42 {
		t.Errorf("pid %d", got)
	}
	if got, ok := ReadExit(dir); !ok || got != exit {
		t.Errorf("exit %+v, want %+v", got, exit)
	}
	for range 2 {
		if err := Forget(dir); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != ExitName {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// The server changes a container's limits in its specification while the shim forgets a start of it
// that was given up.
func TestForgetLeavesWhatTheServerWrites(t *testing.T) {
	dir := t.TempDir()
	theirs, err := durable.Create(filepath.Join(dir, ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := durable.Create(filepath.Join(dir, TaskName))
	if err != nil {
		t.Fatal(err)
	}
	if err := Forget(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ours.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a half-written task: %v, want it removed", err)
	}
	if err := theirs.Commit(); err != nil {
		t.Error(err)
	}
}

func TestTaskOfAnotherFormat(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, TaskName)
	for _, text := range []string{`{"engine":"runc"}`, `{"version":2,"engine":"runc"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadTask(dir); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
}

func TestHalfWrittenExitIsNone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ExitName), []byte(`{"code":1`), 0o600); err != nil {
		t.Fatal(err)
	}
	if e, ok := ReadExit(dir); ok {
		t.Errorf("exit %+v", e)
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct{ options, want, dir string }{
		{"lowerdir=/s/1/fs:/s/2/fs upperdir=/u", "lowerdir=1/fs:2/fs upperdir=/u", "/s"},
		{"lowerdir=/s/1/fs:/s/1/gs", "lowerdir=fs:gs", "/s/1"},
		{"lowerdir=/a/b:/c/d", "", ""},
		{"lowerdir=a:b", "", ""},
		{"upperdir=/u", "", ""},
	} {
		short, dir := shorten(strings.Fields(c.options))
		if strings.Join(short, " ") != c.want || dir != c.dir {
			t.Errorf("%s: %q in %q", c.options, short, dir)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root")
	}
}

func TestMountRoot(t *testing.T) {
	needRoot(t)
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]Mount{
		"bind":        {Type: "bind", Source: source, Options: []string{"rbind", "ro"}},
		"tmpfs":       {Type: "tmpfs", Source: "tmpfs", Options: []string{"size=64k", "nodev", "ro"}},
		"lower alone": {Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + source + ":" + t.TempDir()}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Cleanup(func() { UnmountRoot(dir) })
			root, err := MountRoot(dir, []Mount{m}, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "new"), nil, 0o600); err == nil {
				t.Error("a read-only root took a file")
			}
			for range 2 {
				if err := UnmountRoot(dir); err != nil {
					t.Fatal(err)
				}
			}
			if mounted(t, dir) {
				t.Error("still mounted")
			}
		})
	}
}

func TestFailedMountLeavesNone(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	_, err := MountRoot(dir, []Mount{
		{Type: "tmpfs", Source: "tmpfs"},
		{Type: "bind", Source: "/nowhere/at/all"},
	}, "")
	if err == nil {
		t.Error("no error")
	}
	if mounted(t, dir) {
		t.Error("the first mount is left")
	}
}

func TestReadOnlyDiskIsNamed(t *testing.T) {
	needRoot(t)
	layers := t.TempDir()
	for _, name := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(layers, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	defer disk.Cover(t, layers)()
	dir := t.TempDir()
	_, err := MountRoot(dir, []Mount{{Type: "overlay", Source: "overlay", Options: []string{
		"workdir=" + filepath.Join(layers, "work"), "upperdir=" + filepath.Join(layers, "upper"), "lowerdir=" + filepath.Join(layers, "lower"),
	}}}, "")
	if !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v, want that it is read-only", err)
	}
}

func TestManyLayers(t *testing.T) {
	needRoot(t)
	for name, tt := range map[string]struct {
		layers int
		name   string
	}{
		"too long in full":                          {100, strings.Repeat("l", 25)},
		"too long below their common directory too": {500, "layer"},
	} {
		layers, lower := t.TempDir(), []string{}
		for i := range tt.layers {
			path := filepath.Join(layers, tt.name+fmt.Sprint(i), "fs")
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path, fmt.Sprint(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			lower = append(lower, path)
		}
		dir := t.TempDir()
		t.Cleanup(func() { UnmountRoot(dir) })
		if len(strings.Join(lower, ":")) < os.Getpagesize() {
			t.Fatal("too short to be a test")
		}
		upper, work := t.TempDir(), t.TempDir()
		_, err := MountRoot(dir, []Mount{{Type: "overlay", Source: "overlay", Options: []string{
			"index=off", "workdir=" + work, "upperdir=" + upper, "lowerdir=" + strings.Join(lower, ":"), "nosuid",
		}}}, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		entries, err := os.ReadDir(filepath.Join(dir, RootfsName))
		if err != nil || len(entries) != len(lower) {
			t.Errorf("%s: %d files, %v", name, len(entries), err)
		}
		if err := os.WriteFile(filepath.Join(dir, RootfsName, "new"), nil, 0o600); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), dir)
}
