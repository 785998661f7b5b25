package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"

	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/enginetest"
)

// nextGroup is the cgroup of the pod's next container.
func (p *pod) nextGroup() string { return enginetest.CgroupParent + "/" + p.id + "-next" }

// prepare has the shim get ready for the pod's next container and returns the process that it has
// prewarmed then.
func (p *pod) prepare(t *testing.T) int { t.Helper(); return p.prepareIn(t, p.nextGroup()) }

func (p *pod) prepareIn(t *testing.T, group string) int {
	t.Helper()
	check(t, p.Prepare(within(t), client.PrepareRequest{Pod: p.id, Cgroup: group}))
	var pids []string
	eventually(t, "the thread that forked has ended", func() bool { // until then the shim is listed too
		pids = strings.Fields(string(must(os.ReadFile(filepath.Join(memoryRoot(), group, "cgroup.procs")))(t)))
		return len(pids) == 1 && pids[0] != strconv.Itoa(p.PID())
	})
	return must(strconv.Atoi(pids[0]))(t)
}

// memoryRoot is where the cgroups are that account for memory.
func memoryRoot() string {
	if cgroups.IsCgroup2UnifiedMode() {
		return "/sys/fs/cgroup"
	}
	return "/sys/fs/cgroup/memory"
}

// cgroupDirs are the folders of a cgroup.
func cgroupDirs(t *testing.T, group string) []string {
	t.Helper()
	return append(must(filepath.Glob("/sys/fs/cgroup/*"+group))(t), must(filepath.Glob("/sys/fs/cgroup"+group))(t)...)
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestPreparedProcessEndsWithTheShim(t *testing.T) {
	p := newPod(t, "")
	prewarmed := p.prepare(t)
	if again := p.prepare(t); again != prewarmed {
		t.Errorf("process %d was replaced by %d", prewarmed, again)
	}
	shutDown(t, p.Client)
	ended(t, p)
	if alive(prewarmed) { // whoever hears of the shim's end may remove the pod's cgroups
		t.Error("it is still there")
	}
	if left := cgroupDirs(t, p.nextGroup()); len(left) > 0 {
		t.Errorf("cgroups left: %v", left)
	}
}

func TestPreparedProcessEndsWhenTheShimIsKilled(t *testing.T) {
	p := newPod(t, "")
	prewarmed := p.prepare(t)
	check(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	ended(t, p)
	eventually(t, "the prepared process ends", func() bool { return !alive(prewarmed) })
	for _, dir := range cgroupDirs(t, p.nextGroup()) { // which who named it is to remove
		eventually(t, "its cgroup can be removed", func() bool { err := os.Remove(dir); return err == nil || os.IsNotExist(err) })
	}
}

// A Linux container in a prepared pod is the OCI runtime's as ever, and the prepared process waits
// on, unless it is in that one's cgroup.
func TestPreparedProcessIsNoLinuxContainers(t *testing.T) {
	p := newPod(t, "")
	prewarmed := p.prepare(t)
	c := p.container(enginetest.Program{Kind: enginetest.Exit, Code: 3}).create(t).start(t)
	if exit := c.wait(t); exit.Code != 3 {
		t.Errorf("exit %+v", exit)
	}
	c.delete(t)
	if !alive(prewarmed) {
		t.Error("the prepared process is gone")
	}
	c = p.container(enginetest.Program{Kind: enginetest.Exit, Code: 3})
	waits := p.prepareIn(t, c.spec.Linux.CgroupsPath)
	c.create(t)
	if alive(prewarmed) || alive(waits) {
		t.Error("a prepared process is in a container's cgroup")
	}
	if exit := c.start(t).wait(t); exit.Code != 3 {
		t.Errorf("exit %+v", exit)
	}
	c.delete(t)
	shutDown(t, p.Client)
	ended(t, p)
}

func TestLaunch(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{Kind: enginetest.Exit, Code: 3})
	c.prepare(t)
	before := time.Now()
	l := must(p.Launch(within(t), c.req))(t)
	if l.PID <= 0 || l.StartedAt.Before(before) || l.StartedAt.After(time.Now()) {
		t.Errorf("launched %+v", l)
	}
	if _, err := p.Launch(within(t), c.req); !errdefs.IsAlreadyExists(err) {
		t.Errorf("second launch: %v, want already exists", err)
	}
	if exit := c.wait(t); exit.Code != 3 || exit.At.Before(l.StartedAt) {
		t.Errorf("exit %+v", exit)
	}
	c.delete(t)

	for name, program := range map[string]enginetest.Program{"not created": {Kind: enginetest.Missing}} {
		c := p.container(program)
		c.prepare(t)
		if l, err := p.Launch(within(t), c.req); err == nil {
			t.Errorf("%s: launched %+v", name, l)
		}
		if _, err := p.State(within(t), c.id, ""); !errdefs.IsNotFound(err) {
			t.Errorf("%s: state: %v, want not found", name, err)
		}
		if left := must(filepath.Glob("/sys/fs/cgroup/*" + enginetest.CgroupParent + "/" + c.id))(t); len(left) > 0 {
			t.Errorf("%s: cgroups left: %v", name, left)
		}
	}
}
