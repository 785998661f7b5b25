package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
)

// small is a node whose server and pods are in one cgroup.
type small struct {
	*node.Node
	group  group
	killed int64 // processes for lack of memory, that are known
	count  int   // containers
}

// limit sets the node's memory in bytes.
func (s *small) limit(bytes int64) error {
	return s.group.set("memory", "memory.limit_in_bytes", fmt.Sprint(bytes))
}

// forgive has what was killed for lack of memory until now not counted.
func (s *small) forgive() error {
	u, err := s.usage()
	s.killed += u.killed
	return err
}

// on runs use with a node of its own.
func (b *bench) on(ctx context.Context, use func(*small) error) (err error) {
	dir := b.folder()
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "mode=711"); err != nil { // as /run is
		return err
	}
	g, err := newGroup(fmt.Sprintf("sunaba-small-%d", os.Getpid()), int64(b.memory)<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.remove()) }()
	s := &small{group: g}
	programs := filepath.Join(dir, "bin")
	if err := fresh(b.bin, programs); err != nil {
		return err
	}
	options := node.Options{Bin: programs, Dir: dir, Config: fmt.Sprintf("[network]\nconf_dir = %q\n", filepath.Join(dir, "cni"))}
	if err := g.within(func() (err error) {
		s.Node, err = node.Start(ctx, options)
		return err
	}); err != nil {
		return err
	}
	defer func() {
		var removed error
		if s.Alive() {
			removed = s.RemovePods(context.WithoutCancel(ctx))
		}
		_, closed := s.Close()
		err = errors.Join(err, removed, closed)
	}()
	return use(s)
}

// fresh copies both programs, and has the kernel forget what it keeps of the copies: it counts to
// whoever reads it first.
func fresh(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	for _, name := range []string{binaries.Sunaba, binaries.Shim} {
		file, err := os.Open(filepath.Join(to, name))
		if err != nil {
			return err
		}
		err = errors.Join(unix.Fsync(int(file.Fd())), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED), file.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *small) stop() error { return s.SignalDaemon(syscall.SIGTERM) }

func (s *small) start(ctx context.Context) error {
	return s.group.within(func() error { return s.StartDaemon(ctx) })
}

// pull pulls an image, and has the most that is taken counted anew.
func (s *small) pull(ctx context.Context, ref string) (time.Duration, error) {
	if err := s.group.set("memory", "memory.max_usage_in_bytes", "0"); err != nil {
		return 0, err
	}
	started := time.Now()
	if _, err := s.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}}); err != nil {
		return 0, fmt.Errorf("pull %q: %w", ref, err)
	}
	return time.Since(started), nil
}

// up runs pods of one container, each until the container has said something.
func (s *small) up(ctx context.Context, image string, count int) error {
	for range count {
		config := s.PodConfig("default", "small")
		config.PortMappings = []*runtime.PortMapping{{ContainerPort: 8080, Protocol: runtime.Protocol_TCP}}
		sandbox, err := s.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: "wasm"})
		if err != nil {
			return fmt.Errorf("run pod: %w", err)
		}
		container := node.ContainerConfig(image)
		container.Args = []string{"idle"} // which the server does not read
		id, log, err := s.Create(ctx, sandbox.GetPodSandboxId(), config, container)
		if err != nil {
			return fmt.Errorf("create container: %w", err)
		}
		if _, err := s.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: id}); err != nil {
			return fmt.Errorf("start container: %w", err)
		}
		if !node.Within(node.Patience, func() bool {
			said, err := os.ReadFile(log)
			return err == nil && len(said) > 0
		}) {
			return fmt.Errorf("container %q has said nothing: %s", id, s.DaemonLog())
		}
		s.count++
	}
	return s.allRun(ctx)
}

// allRun is an error unless all containers run and nothing was killed for lack of memory.
func (s *small) allRun(ctx context.Context) error {
	list, err := s.ListContainers(ctx, &runtime.ListContainersRequest{})
	if err != nil {
		return err
	}
	run := 0
	for _, c := range list.GetContainers() {
		if c.GetState() == runtime.ContainerState_CONTAINER_RUNNING {
			run++
		}
	}
	u, err := s.usage()
	if err == nil && (run != s.count || u.killed != 0) {
		err = fmt.Errorf("%d of %d containers run, and the kernel has killed %d processes for lack of memory", run, s.count, u.killed)
	}
	return err
}

// usage is what a node takes, in bytes, and how many processes the kernel killed for lack of it.
type usage struct{ all, own, files, kernel, killed int64 }

func (s *small) usage() (u usage, err error) {
	stat, err := s.group.numbers("memory", "memory.stat")
	if err != nil {
		return u, err
	}
	control, err := s.group.numbers("memory", "memory.oom_control")
	if err != nil {
		return u, err
	}
	u = usage{own: stat["total_rss"], files: stat["total_cache"], killed: control["oom_kill"] - s.killed}
	if u.all, err = s.group.number("memory", "memory.usage_in_bytes"); err != nil {
		return u, err
	}
	u.kernel, err = s.group.number("memory", "memory.kmem.usage_in_bytes")
	return u, err
}

func (s *small) peak() (int64, error) { return s.group.number("memory", "memory.max_usage_in_bytes") }

// processes are the proportional set sizes of the server, of all shims and supervisors, and of the
// rest.
func (s *small) processes() (daemon, shims, guests int64, err error) {
	list, err := measure.Shims(s.Node)
	if err != nil {
		return 0, 0, 0, err
	}
	of := map[int]*int64{s.DaemonPID(): &daemon}
	for _, pid := range list {
		of[pid] = &shims
	}
	all, err := s.group.processes()
	if err != nil {
		return 0, 0, 0, err
	}
	for _, pid := range all {
		pss, err := measure.PSS(pid)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return 0, 0, 0, err
		}
		if sum := of[pid]; sum != nil {
			*sum += pss
		} else {
			guests += pss
		}
	}
	return daemon, shims, guests, nil
}

// writtenIn is how many bytes the server and its shims have had written to a disk while nothing
// happens.
func (s *small) writtenIn(ctx context.Context, quiet time.Duration) (int64, error) {
	before, err := measure.Written(s.Node)
	if err != nil {
		return 0, err
	}
	if err := measure.Wait(ctx, quiet); err != nil {
		return 0, err
	}
	after, err := measure.Written(s.Node)
	return after - before, err
}

// group is a cgroup of the same name in each hierarchy of version 1.
type group struct {
	name        string
	hierarchies []string // controllers, with commas between them
}

// hierarchyDir is where a hierarchy of version 1 is mounted.
func hierarchyDir(controllers string) string {
	return filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(controllers, "name="))
}

// newGroup makes a group with so much memory and one processor.
func newGroup(name string, memory int64) (g group, err error) {
	g.name = name
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return g, err
	}
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[1] != "" { // version 2 has none
			g.hierarchies = append(g.hierarchies, fields[1])
		}
	}
	for _, h := range g.hierarchies {
		if err := os.Mkdir(filepath.Join(hierarchyDir(h), name), 0o755); err != nil {
			return g, errors.Join(err, g.remove())
		}
	}
	mems, err := os.ReadFile("/sys/fs/cgroup/cpuset/cpuset.mems")
	err = errors.Join(err,
		g.set("memory", "memory.limit_in_bytes", fmt.Sprint(memory)),
		g.set("cpuset", "cpuset.mems", strings.TrimSpace(string(mems))),
		g.set("cpuset", "cpuset.cpus", "0"))
	if err != nil {
		return g, errors.Join(fmt.Errorf("limit a cgroup of version 1: %w", err), g.remove())
	}
	return g, nil
}

func (g group) file(controller, name string) string {
	return filepath.Join("/sys/fs/cgroup", controller, g.name, name)
}

func (g group) set(controller, name, value string) error {
	return os.WriteFile(g.file(controller, name), []byte(value), 0)
}

func (g group) number(controller, name string) (n int64, err error) {
	data, err := os.ReadFile(g.file(controller, name))
	if err == nil {
		_, err = fmt.Sscan(string(data), &n)
	}
	return n, err
}

// numbers are those of a file with a name and a number in each line.
func (g group) numbers(controller, name string) (map[string]int64, error) {
	data, err := os.ReadFile(g.file(controller, name))
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		var name string
		var n int64
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
		all[name] = n
	}
	return all, nil
}

// within calls a function on a thread that is in the group and sees it as the root of all cgroups:
// what is started there stays in it with all that it makes.
func (g group) within(call func() error) (err error) {
	thread.Run(func() {
		if err = g.enter(); err == nil {
			err = call()
		}
	})
	return err
}

func (g group) enter() error {
	for _, h := range g.hierarchies {
		if err := os.WriteFile(filepath.Join(hierarchyDir(h), g.name, "tasks"), []byte(fmt.Sprint(unix.Gettid())), 0); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	for _, h := range g.hierarchies {
		top := hierarchyDir(h)
		if err := unix.Mount(filepath.Join(top, g.name), top, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount cgroup %s: %w", h, err)
		}
	}
	return nil
}

// processes are those of the group and of all groups below it.
func (g group) processes() (all []int, err error) {
	err = filepath.WalkDir(g.file("memory", ""), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(data)) {
			var pid int
			if _, err := fmt.Sscan(field, &pid); err != nil {
				return err
			}
			all = append(all, pid)
		}
		return err
	})
	return all, err
}

// remove removes the group with what is left below it, once its last processes have ended.
func (g group) remove() error {
	var errs []error
	for _, h := range g.hierarchies {
		top := filepath.Join(hierarchyDir(h), g.name)
		if !node.Within(10*time.Second, func() bool { return removeGroups(top) == nil }) {
			errs = append(errs, removeGroups(top))
		}
	}
	return errors.Join(errs...)
}

func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}
