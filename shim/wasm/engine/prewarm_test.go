package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// eventually waits for something that another process does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// awaitStandBy waits until a prewarmed process has no mount but its private root.
func awaitStandBy(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "the prewarmed process stands by", func() bool {
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		return err == nil && strings.Count(string(mounts), "\n") == 1
	})
}

// TestPrewarmedSeesNothingOfTheHost looks at a prewarmed process before anybody wants it.
func TestPrewarmedSeesNothingOfTheHost(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	pid := b.prepare()
	awaitStandBy(t, pid)
	if got := rootOf(t, pid); got != "cache rootfs" {
		t.Errorf("its root holds %q", got)
	}
	s := status(t, fmt.Sprintf("/proc/%d/status", pid))
	if s["NoNewPrivs"] != "1" || s["CapBnd"] != "0000000000000000" || s["CapAmb"] != "0000000000000000" {
		t.Errorf("it could win privileges: %v", s)
	}
	for _, kind := range []string{"mnt", "pid", "ipc", "uts", "net"} {
		if namespaceOf(t, pid, kind) == namespaceOf(t, os.Getpid(), kind) {
			t.Errorf("its %s namespace is the host's", kind)
		}
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	own := ":memory:" + b.bundle.Spec.Linux.CgroupsPath + "\n"
	if cgroups.IsCgroup2UnifiedMode() {
		own = "0::" + b.bundle.Spec.Linux.CgroupsPath + "\n"
	}
	if err != nil || !strings.Contains(string(groups), own) {
		t.Errorf("it is not in its container's cgroup: %s%v", groups, err)
	}
}

// TestPrewarmedIsInItsContainersCgroup looks at every hierarchy and thread.
func TestPrewarmedIsInItsContainersCgroup(t *testing.T) {
	b := warmed.newBench(t, "probe", "sleep")
	limit := int64(64 << 20)
	b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", c.Init().Pid()))
	if err != nil || len(threads) < 2 {
		t.Fatalf("threads: %v, %v", threads, err)
	}
	for _, name := range threads {
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "0::") && !cgroups.IsCgroup2UnifiedMode() {
				continue // the hybrid layout's second version has no part in it
			}
			if !strings.HasSuffix(strings.TrimSpace(line), ":"+b.bundle.Spec.Linux.CgroupsPath) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	if got, want := limitOf(t, c), fmt.Sprint(limit+int64(enginePart(c.(*container).entry))); got != want {
		t.Errorf("limit %q, want %s", got, want)
	}
	b.checkNonePrewarmed()
	if used := c.Details().EngineCPU; used <= 0 {
		t.Errorf("engine used %v", used)
	}
}

// TestPrewarmedIsForThoseItFits has containers that a prewarmed process cannot become: they get a
// process of their own, and it ends, or waits on where its cgroup is not theirs.
func TestPrewarmedIsForThoseItFits(t *testing.T) {
	holder := newBench(t, "probe", "sleep").create() // somebody whose namespaces can be joined
	for name, change := range map[string]func(b *bench){
		"shared process namespace": func(b *bench) { setPath(b, specs.PIDNamespace, holder.Init().Pid(), "pid") },
		"other network":            func(b *bench) { setPath(b, specs.NetworkNamespace, holder.Init().Pid(), "net") },
		"other host name":          func(b *bench) { setPath(b, specs.UTSNamespace, holder.Init().Pid(), "uts") },
		"host's network":           func(b *bench) { b.bundle.Spec.Linux.Namespaces = b.bundle.Spec.Linux.Namespaces[:4] },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "probe", "sleep")
			prewarmed := b.prepare()
			change(b)
			c := b.create()
			if got := c.Init().Pid(); got == prewarmed {
				t.Error("the prewarmed process was used")
			}
			if unix.Kill(prewarmed, 0) == nil {
				t.Error("the prewarmed process is in another one's cgroup")
			}
			b.checkNonePrewarmed()
			if pids, err := c.Pids(t.Context()); err != nil || len(pids) != 1 || pids[0] != c.Init().Pid() {
				t.Errorf("processes %v, %v", pids, err)
			}
		})
	}
	t.Run("other cgroup", func(t *testing.T) {
		b := newBench(t, "probe", "sleep")
		prewarmed := b.prepare()
		own := b.bundle.Spec.Linux.CgroupsPath
		b.bundle.Spec.Linux.CgroupsPath = own + "-other"
		if got := b.create().Init().Pid(); got == prewarmed {
			t.Error("the prewarmed process was used")
		}
		if b.prewarmed() == nil || unix.Kill(prewarmed, 0) != nil {
			t.Error("the prewarmed process is gone")
		}
		t.Cleanup(func() {
			if err := b.engine.Close(); err != nil || len(groupDirs(own)) > 0 {
				t.Errorf("cgroups left: %v, %v", groupDirs(own), err)
			}
		})
	})
}

func setPath(b *bench, kind specs.LinuxNamespaceType, pid int, name string) {
	for i := range b.bundle.Spec.Linux.Namespaces {
		if ns := &b.bundle.Spec.Linux.Namespaces[i]; ns.Type == kind {
			ns.Path = fmt.Sprintf("/proc/%d/ns/%s", pid, name)
		}
	}
}

func TestTerminalIsNotForAPrewarmedProcess(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	b.prepare()
	birth, err := initBirth(b.bundle.Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer birth.close()
	birth.io.Terminal = true
	if b.engine.take(b.bundle, &birth) != nil {
		t.Error("it was given away")
	}
	b.checkNonePrewarmed()
}

// TestPrewarmedThatFailsIsReplaced has the prewarmed process fail at each point up to where its
// guest is there.
func TestPrewarmedThatFailsIsReplaced(t *testing.T) {
	for name, fail := range map[string]func(b *bench, pid int){
		"dead, and known to be": func(b *bench, pid int) {
			kill(b.t, pid)
			<-b.prewarmed().child.Done
		},
		"dying": func(b *bench, pid int) { kill(b.t, pid) },
		"it does not understand": func(b *bench, _ int) {
			if _, err := b.prewarmed().link.Write([]byte("\x02\x00\x00\x00xx")); err != nil {
				b.t.Fatal(err)
			}
		},
		"it is told of files that do not come": func(b *bench, _ int) {
			text := `{"files":1,"args":[]}`
			if _, err := b.prewarmed().link.Write(append([]byte{byte(len(text)), 0, 0, 0}, text...)); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "suite", "echo", "text")
			prewarmed := b.prepare()
			awaitStandBy(t, prewarmed)
			fail(b, prewarmed)
			c := b.create()
			if c.Init().Pid() == prewarmed {
				t.Error("the prewarmed process was used")
			}
			start(t, c.Init())
			if exit := ended(t, c.Init()); exit.Code != 0 || b.stdout.all() != "text" {
				t.Errorf("exit %+v; stdout %q; stderr %q", exit, b.stdout.all(), b.stderr.all())
			}
			if unix.Kill(prewarmed, 0) == nil {
				t.Error("the prewarmed process is still there")
			}
			b.checkNonePrewarmed()
		})
	}
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestCreateThatFailsEndsThePrewarmedProcess has errors that are the container's own: nothing is
// tried again, nothing is left.
func TestCreateThatFailsEndsThePrewarmedProcess(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"no module": func(b *bench) { b.bundle.Facts.Module.Path = "/no/such/module" },
		"no mount": func(b *bench) {
			b.bundle.Spec.Mounts = []specs.Mount{{Type: "bind", Source: "/no/such/dir", Destination: "/x"}}
		},
		"wrong mount": func(b *bench) { b.bundle.Spec.Mounts = []specs.Mount{{Type: "ext9", Source: "x", Destination: "/x"}} },
		"wrong limit": func(b *bench) { b.bundle.Spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NONE"}} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "probe", "sleep")
			prewarmed := b.prepare()
			change(b)
			b.pipes(false)
			if _, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{}); err == nil {
				t.Error("it was created")
			}
			b.release()
			b.checkGone(prewarmed)
			b.checkNonePrewarmed()
		})
	}
}

// TestStaleEntryWithPrewarmed drops the compiled module between its being found and its being
// opened.
func TestStaleEntryWithPrewarmed(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	b.prepare()
	c := b.create()
	entry := c.(*container).entry
	_, err := (tree{what: "compiled module", path: entry.Dir + "-gone", stale: true}).open()
	if f, ok := errors.AsType[*failure](err); !ok || f.message.Class != link.Stale {
		t.Errorf("a compiled module that is gone is %v", err)
	}
	if err := compile.Drop(b.engine.options.CacheDir, entry.Digest); err != nil {
		t.Fatal(err)
	}
	again := warmed.newBench(t, "probe", "sleep")
	start(t, again.create().Init())
	again.stdout.await(t, "sleep=on")
}

func TestPrepareKeepsOnePrewarmed(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	first := b.prepare()
	if second := b.prepare(); second != first {
		t.Errorf("process %d was replaced by %d without need", first, second)
	}
	b.joinNetwork()
	other := b.prepare()
	if other == first || unix.Kill(first, 0) == nil {
		t.Errorf("process %d is still there beside %d, in other namespaces", first, other)
	}
	b.prewarmed().timer.Reset(0)
	eventually(t, "a prewarmed process that nobody wants ends", func() bool { return unix.Kill(other, 0) != nil })
	eventually(t, "its cgroup is removed", func() bool { return len(groupDirs(b.bundle.Spec.Linux.CgroupsPath)) == 0 })
	left := b.prepare()
	first, b.bundle.Spec.Linux.CgroupsPath = left, b.bundle.Spec.Linux.CgroupsPath+"-next" // as after a container that could not be made
	next := b.prepare()
	if next == first || unix.Kill(first, 0) == nil || len(groupDirs(strings.TrimSuffix(b.bundle.Spec.Linux.CgroupsPath, "-next"))) > 0 {
		t.Errorf("process %d is still there beside %d, in another cgroup", first, next)
	}
	if err := b.engine.Close(); err != nil {
		t.Error(err)
	}
	if unix.Kill(next, 0) == nil {
		t.Error("the prewarmed process outlives its engine")
	}
	if err := b.engine.Prepare(context.Background(), b.preparation()); err != nil || b.prewarmed() != nil {
		t.Errorf("a closed engine has a prewarmed process, %v", err)
	}
}

// newNeighbour makes a bundle of another pod: below a cgroup of the pod's own, and in its own
// network namespace, which is somebody's.
func newNeighbour(t *testing.T, e *Engine, network int) *bench {
	t.Helper()
	b := newBench(t, "probe", "sleep")
	b.engine = e
	setPath(b, specs.NetworkNamespace, network, "net")
	pod := shared.cgroup + "/pod-" + b.bundle.ID
	b.bundle.Spec.Linux.CgroupsPath = pod + "/" + b.bundle.ID
	t.Cleanup(func() {
		for _, dir := range groupDirs(pod) {
			if err := os.Remove(dir); err != nil {
				t.Error("leftover cgroup:", err)
			}
		}
	})
	return b
}

// TestPodsHavePrewarmedProcessesOfTheirOwn has a shim of several pods: each one's prewarmed process
// is used for its containers only.
func TestPodsHavePrewarmedProcessesOfTheirOwn(t *testing.T) {
	e := shared.engine(t)
	holders := []shim.Container{newBench(t, "probe", "sleep").create(), newBench(t, "probe", "sleep").create()}
	var pods []*bench
	var prewarmed []int
	for _, holder := range holders {
		b := newNeighbour(t, e, holder.Init().Pid())
		pods, prewarmed = append(pods, b), append(prewarmed, b.prepare())
	}
	for i, b := range pods {
		if again := b.prepare(); again != prewarmed[i] {
			t.Errorf("pod %d: process %d was replaced by %d", i, prewarmed[i], again)
		}
	}
	second := newNeighbour(t, e, holders[0].Init().Pid()) // the first pod's namespaces, but another pod
	if got := second.create().Init().Pid(); got == prewarmed[0] || got == prewarmed[1] {
		t.Error("a pod without a prewarmed process got another one's")
	}
	for i, b := range pods {
		c := b.create()
		if got := c.Init().Pid(); got != prewarmed[i] {
			t.Errorf("pod %d: first process %d, the prewarmed one was %d", i, got, prewarmed[i])
		}
		if got, want := namespaceOf(t, c.Init().Pid(), "net"), namespaceOf(t, holders[i].Init().Pid(), "net"); got != want {
			t.Errorf("pod %d is in network %s, want %s", i, got, want)
		}
		b.checkNonePrewarmed()
	}
}

// TestPrewarmedEndsWithItsPod tells the engine that one of two pods goes.
func TestPrewarmedEndsWithItsPod(t *testing.T) {
	e, holder := shared.engine(t), newBench(t, "probe", "sleep").create()
	goes, stays := newNeighbour(t, e, holder.Init().Pid()), newNeighbour(t, e, holder.Init().Pid())
	first, second := goes.prepare(), stays.prepare()
	for range 2 {
		if err := e.Unprepare(context.Background(), goes.pod()); err != nil {
			t.Error(err)
		}
	}
	if unix.Kill(first, 0) == nil {
		t.Error("the prewarmed process outlives its pod")
	}
	goes.checkNonePrewarmed()
	if unix.Kill(second, 0) != nil {
		t.Error("another pod's went with it")
	}
	if err := e.Prepare(context.Background(), goes.preparation()); err != nil || goes.prewarmed() != nil { // asked for before the end, heard of after
		t.Errorf("a pod that is over has a prewarmed process, %v", err)
	}
	goes.checkNonePrewarmed()
}

// TestPrewarmedProcessesAreBounded has more pods than there may be prewarmed processes.
func TestPrewarmedProcessesAreBounded(t *testing.T) {
	e, holder := shared.engine(t), newBench(t, "probe", "sleep").create()
	pods := make([]*bench, maxPrewarmed+1)
	pids := make([]int, len(pods))
	for i := range pods {
		pods[i] = newNeighbour(t, e, holder.Init().Pid())
		pids[i] = pods[i].prepare()
		if i == 1 {
			pods[0].prepare() // the second is the oldest now
		}
	}
	for i, pid := range pids {
		if there := unix.Kill(pid, 0) == nil; there != (i != 1) {
			t.Errorf("prewarmed process %d of %d is there: %t", i+1, len(pods), there)
		}
	}
	if n := len(e.stock.slots); n != maxPrewarmed {
		t.Errorf("%d slots", n)
	}
}

// TestPrepareWithoutCgroup has callers that name none, or one below their own.
func TestPrepareWithoutCgroup(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	for _, group := range []string{"", "relative"} {
		p := b.preparation()
		p.Cgroup = group
		if err := b.engine.Prepare(context.Background(), p); err != nil || b.prewarmed() != nil {
			t.Errorf("cgroup %q: prewarmed %v, %v", group, b.prewarmed(), err)
		}
	}
	p := b.preparation()
	p.Namespaces = []specs.LinuxNamespace{{Type: specs.NetworkNamespace, Path: "/no/such/namespace"}}
	if err := b.engine.Prepare(context.Background(), p); !errdefs.IsFailedPrecondition(err) { // as of a pod that is stopped meanwhile
		t.Errorf("a namespace that is not there: %v", err)
	}
}

// TestPrepareTooLate is told of a container's cgroup when the container is there, or another
// engine's may be.
func TestPrepareTooLate(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	c := b.create()
	if err := b.engine.Prepare(context.Background(), b.preparation()); err != nil {
		t.Error(err)
	}
	b.checkNonePrewarmed()
	if pids, err := c.Pids(t.Context()); err != nil || len(pids) != 1 {
		t.Errorf("processes %v, %v", pids, err)
	}
	other := newBench(t, "probe", "sleep")
	prewarmed := other.prepare()
	other.engine.Vacate(other.bundle.Spec.Linux.CgroupsPath)
	other.checkGone(prewarmed)
	if err := other.engine.Prepare(context.Background(), other.preparation()); err != nil {
		t.Error(err)
	}
	other.checkNonePrewarmed()
}

// TestPrepareBesideCreate has both come at once, and the request for another cgroup too: the
// container has one process.
func TestPrepareBesideCreate(t *testing.T) {
	for i := range 20 {
		b := newBench(t, "probe", "sleep")
		b.joinNetwork()
		p, next := b.preparation(), b.preparation()
		next.Cgroup += "-next"
		if i%2 == 0 {
			b.prepare()
		}
		var beside sync.WaitGroup
		for _, p := range []shim.Preparation{p, next} {
			beside.Go(func() {
				if err := b.engine.Prepare(context.Background(), p); err != nil {
					t.Error(err)
				}
			})
		}
		c := b.create()
		beside.Wait()
		if pids, err := c.Pids(t.Context()); err != nil || len(pids) != 1 || pids[0] != c.Init().Pid() {
			t.Errorf("processes %v, %v", pids, err)
		}
		if one := b.prewarmed(); one != nil && one.leaf != next.Cgroup {
			t.Errorf("a process waits in %q", one.leaf)
		}
		if err := b.engine.Close(); err != nil {
			t.Error(err)
		}
		if left := groupDirs(next.Cgroup); len(left) > 0 {
			t.Errorf("cgroups left: %v", left)
		}
	}
}

// TestMountsStayWithTheGuest has a host whose mounts are shared with everybody who asks, as
// systemd's are: what is mounted for a guest must not appear there, also not below what it is
// given.
func TestMountsStayWithTheGuest(t *testing.T) { eachWay(t, mountsStayWithTheGuest) }

func mountsStayWithTheGuest(t *testing.T, w way) {
	b := w.newBench(t, "probe", "read:/data/below/file")
	data := openDir(t)
	for _, dir := range []string{b.bundle.Rootfs, data} {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			t.Fatal(err)
		}
	}
	below := filepath.Join(data, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("x", below, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(below, "file"), []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.bundle.Spec.Mounts = []specs.Mount{
		{Type: "tmpfs", Source: "tmpfs", Destination: "/dev", Options: []string{"mode=755"}},
		{Type: "bind", Source: data, Destination: "/data", Options: []string{"rbind", "rshared"}},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/data/below/inner"},
	}
	before := mountsBelow(t, b.bundle.Rootfs, data)
	b.pipes(false)
	if w == warmed {
		b.prepare()
	}
	c, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	b.release()
	if err != nil {
		t.Fatal(err)
	}
	if after := mountsBelow(t, b.bundle.Rootfs, data); after != before {
		t.Errorf("%d mounts of the host before, %d after", before, after)
	}
	start(t, c.Init())
	if exit := ended(t, c.Init()); exit.Code != 0 || b.stdout.all() != "read:/data/below/file=text\n" {
		t.Errorf("exit %+v, stdout %q, stderr %q", exit, b.stdout.all(), b.stderr.all())
	}
	if err := c.Delete(context.Background()); err != nil {
		t.Error(err)
	}
}

func mountsBelow(t *testing.T, dirs ...string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, dir := range dirs {
		n += strings.Count(string(data), " "+dir)
	}
	return n
}

// TestUmaskOfEveryProcess has a file made by a first and by a further process: the threads of each
// have one mask.
func TestUmaskOfEveryProcess(t *testing.T) { eachWay(t, umaskOfEveryProcess) }

func umaskOfEveryProcess(t *testing.T, w way) {
	b := w.newBench(t, "probe", "write:/tmp/first", "sleep")
	mask := uint32(0o177)
	b.bundle.Spec.Process.User.Umask = &mask
	b.bundle.Spec.Mounts = []specs.Mount{{Type: "tmpfs", Source: "tmpfs", Destination: "/tmp"}}
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	runFurther(t, c, &specs.Process{Args: []string{"/app.wasm", "write:/tmp/second"}, Cwd: "/", User: specs.User{Umask: &mask}})
	for _, name := range []string{"first", "second"} {
		info, err := os.Stat(fmt.Sprintf("/proc/%d/root/rootfs/tmp/%s", c.Init().Pid(), name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info, err)
		}
	}
}
