package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/systemd"
)

// systemdManager skips where systemd does not run the machine; tests/vm has a machine that it runs.
func systemdManager(t *testing.T) *Manager {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("must run as root")
	}
	if !systemd.Runs() {
		t.Skip("needs systemd")
	}
	m, err := New("systemd")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// made makes a pod's slice, which goes with the test.
func (m *Manager) made(t *testing.T, parent string) {
	t.Helper()
	if err := m.MakePod(parent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.RemovePod(parent); err != nil {
			t.Error(err)
		}
		for _, root := range limiting(m) {
			if _, err := os.Stat(filepath.Join(root, m.Path(parent))); err == nil {
				t.Errorf("slice %s is left in %s", parent, root)
			}
		}
	})
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// weightOf is the weight of a cgroup as the kernel has it.
func (m *Manager) weightOf(t *testing.T, path string) string {
	t.Helper()
	name := "cpu.shares"
	if m.Unified != "" {
		name = "cpu.weight"
	}
	data, err := os.ReadFile(m.Mounts.Group(path).File("cpu", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// as tells shares in the hierarchy's own form.
func (m *Manager) as(shares uint64) string {
	if m.Unified != "" {
		shares = cgroup.Weight(shares)
	}
	return fmt.Sprint(shares)
}

// The slice of pods without a parent is made with its weight, which its pods do not share, and
// which an administrator may change: what systemd knows stays when a server starts.
func TestOwnSliceWeight(t *testing.T) {
	m := systemdManager(t)
	if systemctl(t, "show", "--value", "-p", "ActiveState", ownSlice) == "active" {
		systemctl(t, "stop", ownSlice) // an earlier test's
	}
	first, _, err := m.Pod("weight1", "")
	if err != nil {
		t.Fatal(err)
	}
	m.made(t, first)
	if got := m.weightOf(t, "/"+ownSlice); got != m.as(ownShares()) {
		t.Errorf("%s weighs %s, want %s", ownSlice, got, m.as(ownShares()))
	}
	if got := m.weightOf(t, m.Path(first)); got != m.as(cgroup.DefaultShares) {
		t.Errorf("a pod that declares nothing weighs %s, want %s", got, m.as(cgroup.DefaultShares))
	}
	if err := m.LimitPod(first, Limits{Shares: 512}); err != nil {
		t.Fatal(err)
	}
	if got := m.weightOf(t, m.Path(first)); got != m.as(512) {
		t.Errorf("a pod with 512 shares weighs %s, want %s", got, m.as(512))
	}

	systemctl(t, "set-property", "--runtime", ownSlice, "CPUWeight=33")
	t.Cleanup(func() { systemctl(t, "revert", ownSlice) })
	changed := m.weightOf(t, "/"+ownSlice)
	if changed == m.as(ownShares()) {
		t.Fatalf("systemd did not change the weight: %s", changed)
	}
	next := systemdManager(t) // a server that was restarted
	second, _, err := next.Pod("weight2", "")
	if err != nil {
		t.Fatal(err)
	}
	next.made(t, second)
	if got := m.weightOf(t, "/"+ownSlice); got != changed {
		t.Errorf("an administrator's weight %s became %s", changed, got)
	}
}

// A slice of a client, such as kubepods.slice, is at the top, one with a dash in its name below
// another; both are limited there and nowhere else.
func TestGivenSlices(t *testing.T) {
	m := systemdManager(t)
	for _, want := range []string{"/cgrouptest.slice", "/cgrouptest.slice/cgrouptest-besteffort.slice"} {
		parent, owned, err := m.Pod("", want)
		if err != nil || owned {
			t.Fatalf("%s: %q, owned %v, %v", want, parent, owned, err)
		}
		m.made(t, parent)
		if err := m.LimitPod(parent, Limits{Memory: 64 << 20, Shares: 512}); err != nil {
			t.Fatal(err)
		}
		var memory []byte
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			if data, err := os.ReadFile(m.Mounts.Group(want).File("memory", name)); err == nil {
				memory = data
			}
		}
		if got := strings.TrimSpace(string(memory)); got != fmt.Sprint(64<<20) || m.weightOf(t, want) != m.as(512) {
			t.Errorf("%s is limited to %s bytes and weighs %s", want, got, m.weightOf(t, want))
		}
		if got := systemctl(t, "show", "--value", "-p", "ControlGroup", parent); got != want {
			t.Errorf("%s: systemd has it in %s, want %s", want, got, want)
		}
		for _, root := range limiting(m) {
			if _, err := os.Stat(filepath.Join(root, "system.slice", parent)); err == nil {
				t.Errorf("%s: there is another one in system.slice of %s", want, root)
			}
		}
	}
	if _, _, err := m.Pod("", "/kubepods"); err == nil {
		t.Error("a parent that is no slice was taken")
	}
}

// RE7: the slice of all pods has the limit, until it is taken away.
func TestSystemdLimitOwn(t *testing.T) {
	m := systemdManager(t)
	property := "MemoryLimit"
	if m.Unified != "" {
		property = "MemoryMax"
	}
	for _, c := range []struct {
		memory uint64
		want   string
	}{{1 << 46, "70368744177664"}, {0, "infinity"}} {
		if err := m.LimitOwn(c.memory); err != nil {
			t.Fatal(err)
		}
		if got := systemctl(t, "show", "--value", "--property", property, ownSlice); got != c.want {
			t.Errorf("%s is %q, want %s", property, got, c.want)
		}
	}
}
