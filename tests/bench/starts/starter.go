package starts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/engine"
	"github.com/sunaba-project/sunaba/tests/measure"
)

// starter starts guests through the engine that shims have, with the shim's binary, and the peer's
// processes beside them.
type starter struct {
	Options
	reaper *reaper.Reaper
	engine *engine.Engine
	null   *os.File
	facts  annotation.Facts // of each container
	count  int
}

// running is a process that has written its first byte.
type running struct {
	pid  int
	took time.Duration // until then
	used time.Duration // of the processor's time, by the process and by who started it
	end  func() error
}

func (s *starter) open() (err error) {
	if s.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	if s.Digest != "" {
		s.facts.Module = annotation.Module{Path: s.Module, Digest: s.Digest}
	}
	if s.reaper, err = reaper.New(); err != nil {
		return err
	}
	s.engine, err = engine.New(engine.Options{Self: s.Shim, CacheDir: filepath.Join(s.Dir, "cache")}, s.reaper)
	return err
}

func (s *starter) close() error {
	errs := []error{s.engine.Close(), s.null.Close()}
	s.reaper.Close()
	for _, pattern := range []string{"/sys/fs/cgroup/*" + cgroup(), "/sys/fs/cgroup" + cgroup()} {
		found, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, dir := range found {
			errs = append(errs, os.Remove(dir))
		}
	}
	return errors.Join(errs...)
}

// cgroup is the parent of the guests' cgroups.
func cgroup() string { return fmt.Sprintf("/sunaba-bench-wasm-%d", os.Getpid()) }

// nextGroup is the cgroup of the next container.
func (s *starter) nextGroup() string { return fmt.Sprintf("%s/guest-%d", cgroup(), s.count+1) }

// namespaces are those of a container. A pod has made the network's before.
func namespaces() []specs.LinuxNamespace {
	return []specs.LinuxNamespace{
		{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace, Path: "/proc/self/ns/net"},
	}
}

// ready starts a container for which there is a process.
func (s *starter) ready(ctx context.Context) (*running, error) {
	if err := s.engine.Prepare(ctx, shim.Preparation{Pod: "bench", Namespaces: namespaces(), Cgroup: s.nextGroup()}); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	if err := measure.Wait(ctx, 100*time.Millisecond); err != nil { // until it waits for its configuration
		return nil, err
	}
	return s.guest(ctx)
}

// guest starts a container: its namespaces (except the network's, which a pod has before), its
// cgroup, its mounts and the process that locks itself in are in the time.
func (s *starter) guest(ctx context.Context) (*running, error) {
	group := s.nextGroup()
	id := filepath.Base(group)
	before := processTime(os.Getpid()) + prewarmedTime(group)
	s.count++
	bundle := filepath.Join(s.Dir, fmt.Sprintf("bundle-%d-%d", os.Getpid(), s.count))
	rootfs := filepath.Join(bundle, "rootfs")
	if err := os.MkdirAll(rootfs, 0o755); err != nil {
		return nil, err
	}
	if err := os.Link(s.Module, filepath.Join(rootfs, "app.wasm")); err != nil {
		return nil, err
	}
	ours, theirs, err := pipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	container, err := s.engine.Create(ctx, &shim.Bundle{
		ID: id, Namespace: "bench", Path: bundle, Rootfs: rootfs,
		Spec: &specs.Spec{
			Version: "1.0.2",
			Root:    &specs.Root{Path: "rootfs"},
			Process: &specs.Process{Args: []string{"/app.wasm"}, Cwd: "/"},
			Linux: &specs.Linux{
				CgroupsPath: group,
				Namespaces:  namespaces(),
			},
			Annotations: map[string]string{},
		},
		Facts: s.facts,
	}, shim.IO{Stdout: theirs, Stderr: s.null}, shim.Options{})
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("create guest: %w", err)
	}
	p := &running{end: func() error {
		return errors.Join(container.Delete(context.Background()), os.RemoveAll(bundle), ours.Close())
	}}
	if err := container.Init().Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start guest: %w", err), p.end())
	}
	if err := firstByte(ours); err != nil {
		return nil, errors.Join(err, p.end())
	}
	p.took, p.pid = time.Since(begin), container.Init().Pid()
	p.used = processTime(os.Getpid()) + processTime(p.pid) - before
	return p, nil
}

// peer starts the peer's process: a fork and an exec, and nothing around it.
func (s *starter) peer(context.Context) (*running, error) {
	ours, theirs, err := pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.Peer[0], s.Peer[1:]...)
	cmd.Stdout, cmd.Stderr = theirs, os.Stderr
	before := processTime(os.Getpid())
	begin := time.Now()
	child, err := s.reaper.Start(cmd)
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the process to compare with: %w", err)
	}
	p := &running{pid: child.Pid, end: func() error {
		if err := s.reaper.Signal(child, unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-child.Done
		return ours.Close()
	}}
	if err := firstByte(ours); err != nil {
		return nil, errors.Join(err, p.end())
	}
	p.took = time.Since(begin)
	p.used = processTime(os.Getpid()) + processTime(p.pid) - before
	return p, nil
}

// prewarmedTime is what the process that waits in a container's cgroup, if there is one, has used
// before its container.
func prewarmedTime(group string) time.Duration {
	for _, root := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		pid, err := os.ReadFile(root + group + "/cgroup.procs")
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(pid), "\n")
		if number, err := strconv.Atoi(first); err == nil {
			return processTime(number)
		}
	}
	return 0
}

// processTime is the processor time that a process has used; 0 for one that is not there.
func processTime(pid int) time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &used); err != nil { // clock_getcpuclockid(3)
		return 0
	}
	return time.Duration(used.Nano())
}
