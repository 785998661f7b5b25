package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// family starts processes in a group, by name: a shell, which has a child, a grandchild and a child
// in a session of its own, and what was started by a process that has ended.
func family(t *testing.T, g *Group) map[string]int {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // process 1 may take its time
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `
		echo shell $$
		read in_the_group
		sh -c 'echo child $$; sleep 1000 & echo grandchild $!; wait' &
		setsid sh -c 'echo apart $$; exec sleep 1000' &
		sh -c 'sleep 1000 & echo orphan $!'
		echo end 0
		wait`)
	// In a group of its own, which is not its session's, whatever this test was started by.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may not have come into the group
		_ = cmd.Wait()
		if err := g.Kill(context.Background()); err != nil {
			t.Error(err)
		}
		for _, pid := range pids {
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	})
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go")
	for range 6 {
		var name string
		var pid int
		if _, err := fmt.Fscan(out, &name, &pid); err != nil {
			t.Fatal(err)
		}
		pids[name] = pid
	}
	delete(pids, "end")
	return pids
}

// TestTree kills a tree and nobody else.
func TestTree(t *testing.T) {
	g := testGroup(t)
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		belongs func(tree *Tree, shell int, from Descent) bool
		want    []string
	}{
		"alone": {func(*Tree, int, Descent) bool { return false }, []string{"shell"}},
		"by parents": {func(tree *Tree, _ int, from Descent) bool { return tree.Has(from.Parent) },
			[]string{"apart", "child", "grandchild", "shell"}},
		"by process group": {func(_ *Tree, shell int, from Descent) bool { return from.Group == shell },
			[]string{"child", "grandchild", "orphan", "shell"}},
		"by session": {func(tree *Tree, _ int, from Descent) bool {
			return tree.Has(from.Session) || tree.Has(from.Parent) && from.Session == from.Group
		},
			[]string{"apart", "shell"}},
	} {
		t.Run(name, func(t *testing.T) {
			pids := family(t, g)
			var tree Tree
			from, err := tree.Add(pids["shell"])
			if own := (Descent{os.Getpid(), pids["shell"], session(t)}); err != nil || from != own {
				t.Errorf("the shell comes from %+v, want %+v: %v", from, own, err)
			}
			if err := tree.Grow(t.Context(), g, func(_ int, from Descent) bool { return c.belongs(&tree, pids["shell"], from) }); err != nil {
				t.Fatal(err)
			}
			var got []string
			for name, pid := range pids {
				if tree.Has(pid) {
					got = append(got, name)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) || len(tree.held) != len(c.want) {
				t.Errorf("the tree has %q of %d, want %q", got, len(tree.held), c.want)
			}
			var fds []int
			for _, name := range c.want {
				fd, err := unix.PidfdOpen(pids[name], 0)
				if err != nil {
					t.Fatal(err)
				}
				fds = append(fds, fd)
			}
			if err := tree.Kill(); err != nil {
				t.Error(err)
			}
			waitAll(t.Context(), fds)
			for name, pid := range pids {
				if err := unix.Kill(pid, 0); err != nil && !slices.Contains(c.want, name) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if tree.Has(pids["shell"]) {
				t.Error("the dead belong to the tree")
			}
		})
	}
}

func session(t *testing.T) int {
	t.Helper()
	id, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestNothingGrowsOnTheDead(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	var tree Tree
	if _, err := tree.Add(cmd.Process.Pid); !errors.Is(err, unix.ESRCH) {
		t.Errorf("adding what has ended: %v", err)
	}
	if err := tree.Kill(); err != nil {
		t.Error(err)
	}
}
