package scripts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
)

// A node whose disk is almost full ends the pod that takes the most of it, and no other one. It
// takes in no pods until it has room again; then the pod is made anew.
func TestDiskPressure(t *testing.T) {
	small := disk.New(t, world.Folder, 160)
	m := startPodsIn(t, filepath.Join(small, "node"), "[pods.eviction]\nnodefs_available = \"60Mi\"\nimagefs_available = \"0%\"\ntransition = \"5s\"")
	host := t.TempDir()
	pod := func(name, spec, command string) {
		text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {%s "terminationGracePeriodSeconds": 1,
			"volumes": [{"name": "data", "emptyDir": {}}, {"name": "host", "hostPath": {"path": %q}}],
			"containers": [{"name": "app", "image": %q, "command": ["sh", "-c", %q],
				"volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "host", "mountPath": "/host"}]}]}}`, name, spec, host, world.Busybox, command)
		var err error
		if !node.Within(node.Patience, func() bool { // the disk is full until the evicted pod has ended
			err = os.WriteFile(filepath.Join(m.manifests(), name+".yaml"), []byte(text), 0o600)
			return !errors.Is(err, unix.ENOSPC)
		}) || err != nil {
			t.Fatal(err)
		}
	}
	pod("critical", `"priorityClassName": "system-node-critical",`, "dd if=/dev/zero of=/data/big bs=1048576 count=30; sleep 1000")
	pod("modest", "", "dd if=/dev/zero of=/data/big bs=1048576 count=1; sleep 1000")
	pod("eater", "", "sleep 2; [ -e /host/done ] || { touch /host/done; dd if=/dev/zero of=/data/big bs=1048576 count=500; }; sleep 1000") // until there is no room at all
	wait := func(what string, f func() bool) {
		t.Helper()
		if !node.Within(2*node.Patience, f) {
			t.Fatalf("never came to: %s\n%s", what, m.DaemonLog())
		}
	}
	running := func(name string) bool { return m.podOf(name).Status.Phase == corev1.PodRunning }
	wait("all run", func() bool { return running("critical") && running("modest") && running("eater") })
	first := map[string]string{}
	for _, name := range []string{"critical", "modest", "eater"} {
		first[name] = string(m.podOf(name).UID)
	}
	wait("the eater is evicted", func() bool { return m.podOf("eater").Status.Reason == "Evicted" })
	if got := m.podOf("eater").Status.Message; !strings.HasPrefix(got, "The node was low on resource: ephemeral-storage. Threshold quantity: 60Mi, available: ") {
		t.Errorf("message %q", got)
	}
	began := time.Now()
	pod("late", "", "sleep 1000")
	wait("the late one waits", func() bool {
		for _, c := range m.podOf("late").Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "node had condition: [DiskPressure]") {
				return true
			}
		}
		return false
	})
	wait("the eater is made anew", func() bool {
		return string(m.podOf("eater").UID) != first["eater"] && running("eater") && running("late")
	})
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("made anew after %s", took)
	}
	for _, name := range []string{"critical", "modest"} {
		if !running(name) || string(m.podOf(name).UID) != first[name] {
			t.Errorf("%s is another one, or does not run", name)
		}
	}
	m.endPods()
}

// podOf is a pod as the commands show it.
func (m pods) podOf(name string) *corev1.Pod {
	m.T.Helper()
	p := &corev1.Pod{}
	out, err := exec.Command(filepath.Join(world.Bin, "sunaba"), "get", "--state="+m.State, "pod/"+name, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, p)
	}
	if err != nil {
		m.T.Logf("get pod %s: %v", name, err)
	}
	return p
}
