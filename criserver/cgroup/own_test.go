package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// RE7: the limit of all pods is on the folder that is there, on one that is made anew, and nowhere
// after it was taken away. The hierarchies are folders of the test.
func TestLimitOwn(t *testing.T) {
	for _, unified := range []bool{false, true} {
		file, none := "memory.limit_in_bytes", "-1"
		if unified {
			file, none = "memory.max", "max"
		}
		root := t.TempDir()
		m := &Manager{Layout: Layout{Driver: Cgroupfs}, Mounts: &cgroup.Mounts{V1: map[string]string{"memory": root}}}
		if unified {
			m.Mounts = &cgroup.Mounts{Unified: root}
		}
		dir := filepath.Join(root, ownParent)
		value := func() string {
			data, _ := os.ReadFile(filepath.Join(dir, file))
			return strings.TrimSpace(string(data))
		}
		if err := m.LimitOwn(1 << 30); err != nil || value() != "" { // nothing is there yet
			t.Errorf("%v, %s is %q", err, file, value())
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for memory, want := range map[uint64]string{1 << 31: "2147483648", 0: none} {
			if err := m.LimitOwn(memory); err != nil || !strings.HasPrefix(value(), want) {
				t.Errorf("%v, %s is %q, want %q", err, file, value(), want)
			}
			if err := os.Truncate(filepath.Join(dir, file), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// RE7: the kernel's folder of all pods has the limit when it is made with the first pod.
func TestLimitOwnOfTheKernel(t *testing.T) {
	m, err := New("cgroupfs")
	if err != nil {
		t.Fatal(err)
	}
	if m.Group(ownParent).Exists() {
		m.prune() // unless pods run
	}
	made := !m.Group(ownParent).Exists()
	const limit = 1 << 46 // more than the machine has: other pods on it are not touched
	if err := m.LimitOwn(limit); err != nil {
		t.Fatal(err)
	}
	parent, _, err := m.Pod("limited", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.MakePod(parent); err != nil {
		t.Fatal(err)
	}
	group := m.Group(ownParent)
	name := "memory.limit_in_bytes"
	if group.Unified() {
		name = "memory.max"
	}
	if got, err := group.Number("memory", name); err != nil || got != limit {
		t.Errorf("%s is %d, want %d, %v (made: %t)", name, got, uint64(limit), err, made)
	}
	if err := m.LimitOwn(0); err != nil {
		t.Error(err)
	}
	if got, err := group.Number("memory", name); err == nil && got == limit {
		t.Errorf("%s is still %d", name, got)
	}
	if err := m.RemovePod(parent); err != nil {
		t.Error(err)
	}
}
