package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A supervisor that has started its shim already comes into the cgroup of shims with it, under both
// drivers.
func TestFamilyIsPlaced(t *testing.T) {
	for _, driver := range []Driver{Cgroupfs, Systemd} {
		t.Run(string(driver), func(t *testing.T) {
			if driver == Systemd {
				placeFamily(t, systemdManager(t))
				return
			}
			if os.Geteuid() != 0 {
				t.Fatal("must run as root")
			}
			m, err := New(string(driver))
			if err != nil {
				t.Fatal(err)
			}
			placeFamily(t, m)
		})
	}
}

func placeFamily(t *testing.T, m *Manager) {
	leaf := m.ShimLeaf("cgrouptest-" + filepath.Base(t.TempDir()))
	t.Cleanup(func() {
		for range 2 {
			if err := m.RemoveShimLeaf(leaf); err != nil {
				t.Error(err)
			}
		}
		for _, root := range m.Roots() {
			if _, err := os.Stat(filepath.Join(root, m.Path(leaf))); err == nil {
				t.Errorf("left in %s", root)
			}
		}
	})
	supervisor, shim := family(t)
	if err := m.PlaceFamily(leaf, supervisor); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{supervisor, shim} {
		for _, root := range limiting(m) {
			data, err := os.ReadFile(filepath.Join(root, m.Path(leaf), "cgroup.procs"))
			if err != nil || !slices.Contains(strings.Fields(string(data)), fmt.Sprint(pid)) {
				t.Errorf("in %s are processes %q, not %d: %v", root, data, pid, err)
			}
		}
	}
	if err := m.End(t.Context(), leaf); err != nil {
		t.Error(err)
	}
	if pids, err := m.Group(leaf).PidsInAny(); err != nil || len(pids) != 0 {
		t.Errorf("processes %v after their end: %v", pids, err)
	}
}

// limiting are the hierarchies in which a driver places processes.
func limiting(m *Manager) []string {
	return slices.DeleteFunc(m.Roots(), func(root string) bool { return root == m.Hybrid })
}

// family starts a process that has started another one. Both are reaped when they end.
func family(t *testing.T) (parent, child int) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(reaped)
		_ = cmd.Wait()
		_, _ = unix.Wait4(child, nil, 0, nil)
	}()
	t.Cleanup(func() {
		_ = unix.Kill(child, unix.SIGKILL)
		_ = cmd.Process.Kill()
		<-reaped
	})
	return cmd.Process.Pid, child
}
