package leftovers

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

// A checker that sees nothing is worse than none: each kind is left behind here on purpose.
func TestEachKindIsSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: it mounts a file system and makes a cgroup")
	}
	dir := t.TempDir()
	scope := Scope{Dirs: []string{dir}, Cgroups: []string{"leftovers-test-" + filepath.Base(dir)}}
	before, err := Take(scope)
	if err != nil {
		t.Fatal(err)
	}

	point := filepath.Join(dir, "mount")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(point, unix.MNT_DETACH)

	controller := "/sys/fs/cgroup"
	if _, err := os.Stat(controller + "/cgroup.procs"); err != nil {
		controller = "/sys/fs/cgroup/memory"
	}
	group := filepath.Join(controller, scope.Cgroups[0])
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(group)

	sleep := exec.Command("sleep", "60")
	sleep.Dir = dir
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sleep.Process.Kill(); sleep.Wait() }()
	// An exec has succeeded before the kernel knows the new arguments.
	for line := []byte(nil); len(line) == 0; {
		if line, err = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", sleep.Process.Pid)); err != nil {
			t.Fatal(err)
		}
	}

	after, err := Take(scope)
	if err != nil {
		t.Fatal(err)
	}
	fresh := strings.Join(after.Since(before), "\n")
	for _, want := range []string{"mount on " + point, "cgroup " + group, "sleep 60", "file " + point} {
		if !strings.Contains(fresh, want) {
			t.Errorf("%q is not among\n%s", want, fresh)
		}
	}
}

// A shell that executes its last command is no new process; one with the same id that was started
// later is.
func TestSinceKnowsProcesses(t *testing.T) {
	before := Snapshot{"link a (veth)", "process 7 since 100 (R) sh -c echo idle; sleep 1000"}
	now := Snapshot{"link a (bridge)", "process 7 since 100 (S) sleep 1000", "process 7 since 200 (S) sleep 1000", "process 8 since 100 (S) sleep 1000"}
	want := []string{"link a (bridge)", "process 7 since 200 (S) sleep 1000", "process 8 since 100 (S) sleep 1000"}
	if got := now.Since(before); !slices.Equal(got, want) {
		t.Errorf("new are %q, want %q", got, want)
	}
}
