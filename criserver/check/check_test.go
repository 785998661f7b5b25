package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// A finding is the same in another look although processes have come and ended, and pods.
func TestKeyOfFindings(t *testing.T) {
	const what = "its supervisor 7 does not run: if the shim (among processes [8 19]) dies now, its 2 pods end"
	first := Finding{Subject: "shim of handler \"wasm\"", What: what}
	for _, c := range []struct {
		f    Finding
		same bool
	}{
		{Finding{Subject: first.Subject, What: "its supervisor 7 does not run: if the shim (among processes [8]) dies now, its 13 pods end"}, true},
		{Finding{Subject: "shim of handler \"runc\"", What: what}, false},
		{Finding{Subject: first.Subject, What: "no pod has it, but processes [8] work for it"}, false},
		{Finding{Subject: "pod 12", What: what}, false},
	} {
		if same := c.f.key() == first.key(); same != c.same {
			t.Errorf("%+v is the same: %v", c.f, same)
		}
	}
}

// Nobody is told to remove a pod for a container whose end is only not written yet, whatever of the
// container is removed by then.
func TestEndThatIsNotWritten(t *testing.T) {
	o := Options{State: t.TempDir(), Served: true}
	pod := state.Sandbox{ID: "pod"}
	dir := o.layout().Dir(pod.ID)
	if err := os.MkdirAll(filepath.Join(dir, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir) // as the pod's shim
	if err := os.WriteFile(filepath.Join(dir, client.PidName), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	look, err := o.layout().Look()
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{o: o, seen: &sight{shims: look}}
	j.running(pod, state.Container{ID: "c", Phase: state.Running, PID: ended.Process.Pid})
	if len(j.findings) != 1 || !strings.Contains(j.findings[0].Do, "check again") {
		t.Errorf("findings %+v", j.findings)
	}
}
