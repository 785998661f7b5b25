package runc

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/go-runc"

	"github.com/sunaba-project/sunaba/host/cgroup"
	hostprocess "github.com/sunaba-project/sunaba/host/process"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
)

// The logs that CRIU leaves in its working folder.
const (
	dumpLog    = "dump.log"
	restoreLog = "restore.log"
)

var (
	_ shim.Checkpointer = (*container)(nil)
	_ shim.Restorer     = (*Engine)(nil)
)

// Checkpoint implements shim.Checkpointer: the runtime asks CRIU.
func (c *container) Checkpoint(ctx context.Context, how shim.Checkpoint) error {
	how.Work = cmp.Or(how.Work, how.Images)
	var dirs []string
	for _, dir := range []string{how.Images, how.Work} {
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err != nil {
			return fmt.Errorf("make folder of the checkpoint: %w", err)
		}
		dirs = append(dirs, dir)
	}
	opts := &runc.CheckpointOpts{
		ImagePath: how.Images, WorkDir: how.Work, AllowOpenTCP: how.TCP, AllowExternalUnixSockets: how.UnixSockets,
		AllowTerminal: how.Terminal, FileLocks: how.FileLocks, EmptyNamespaces: how.EmptyNamespaces,
		Cgroups: runc.CgroupMode(how.CgroupsMode),
	}
	var actions []runc.CheckpointAction
	if !how.Exit {
		actions = append(actions, runc.LeaveRunning)
	}
	c.dumping.Lock()
	defer c.dumping.Unlock()
	runtime := *c.runtime
	runtime.WorkDir = how.Work
	err := c.ask(func() error { return runtime.Checkpoint(ctx, c.id, opts, actions...) })
	if ctx.Err() != nil { // the shim is the subreaper
		awaitCRIU(os.Getpid(), func(pid int) bool { return worksIn(pid, dirs) })
	}
	return c.criuError(ctx, err, filepath.Join(how.Work, dumpLog))
}

// criuTime is how long CRIU may run after its runtime was killed.
const criuTime = time.Minute

// awaitCRIU waits until a CRIU that a killed runtime has left to a parent has ended. At its end it
// leaves the container's freezer as it was at its start, so that the container can be resumed only
// then. Killed in the middle it would break the container, so that comes last.
func awaitCRIU(parent int, is func(pid int) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), criuTime)
	defer cancel()
	// A list of children may miss one while another ends.
	for misses := 0; misses < 3; time.Sleep(20 * time.Millisecond) {
		misses++
		for _, pid := range hostprocess.Children(parent) {
			there := func() bool { return is(pid) }
			if !there() {
				continue
			}
			misses = 0
			if ctx.Err() != nil {
				_ = hostprocess.Kill(ctx, pid, there)
			}
		}
	}
}

// worksIn says whether a process is in one of these folders, or is a CRIU that has one open: it
// enters the container's mount namespace for a while.
func worksIn(pid int, dirs []string) bool {
	links := []string{fmt.Sprintf("/proc/%d/cwd", pid)}
	if isCRIU(pid) {
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		links = append(links, open...)
	}
	return slices.ContainsFunc(links, func(link string) bool {
		at, err := os.Readlink(link)
		return err == nil && slices.Contains(dirs, strings.TrimSuffix(at, " (deleted)"))
	})
}

func isCRIU(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	own, _ := os.Readlink("/proc/self/ns/pid")
	its, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && string(name) == "criu\n" && its == own // a container's program may have its name
}

// criuError adds to a runtime's error what CRIU had to say. If it had nothing, the runtime could
// not run it.
func (c *container) criuError(ctx context.Context, err error, log string) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", err, ctx.Err())
	case errdefs.IsNotFound(err):
		return err
	}
	if strings.Contains(err.Error(), "unknown command") { // crun
		return fmt.Errorf("OCI runtime %s was built without checkpoints: %w", c.runtime.Command, errdefs.ErrFailedPrecondition)
	}
	text, _, _ := strings.Cut(err.Error(), "\n") // what follows quotes the log
	if said := criuSaid(log); said != "" {
		text += ": criu: " + said
	}
	return fmt.Errorf("%s: %w", text, errdefs.ErrFailedPrecondition)
}

// criuSaid is the end of the errors in CRIU's log. Its very last line only says that it has failed,
// and the ones before it go from the cause outwards.
func criuSaid(log string) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	var said []string
	for line := range strings.Lines(string(data)) {
		_, text, found := strings.Cut(line, "Error (")
		_, text, ok := strings.Cut(text, "): ")
		text = strings.TrimSpace(text)
		if found && ok && !strings.HasSuffix(text, "FAILED.") {
			said = append(said, text)
		}
	}
	return strings.Join(said[max(0, len(said)-3):], "; ")
}

// restoration is what a container that is restored at its start needs.
type restoration struct {
	first
	images, workPath string
}

// Restore implements shim.Restorer.
func (e *Engine) Restore(_ context.Context, b *shim.Bundle, files shim.IO, o shim.Options, images string) (shim.Container, error) {
	if _, err := os.Stat(filepath.Join(images, "inventory.img")); err != nil {
		return nil, fmt.Errorf("restore: %q is not a checkpoint: %w: %w", images, err, errdefs.ErrInvalidArgument)
	}
	c, err := e.unborn(b, o)
	if err != nil {
		return nil, err
	}
	c.init.restore = &restoration{
		first: first{files: files, noPivot: o.NoPivotRoot}, images: images, workPath: filepath.Join(b.Path, "criu"),
	}
	return c, nil
}

// criuConfig is runc's annotation with the path of a file of CRIU options.
const criuConfig = "org.criu.config"

// leaveCgroups keeps CRIU from putting processes where they were when the checkpoint was made: in
// the unified hierarchy nothing tells it of the new place, and it would make the old pod's cgroup
// again, without limits. The runtime starts CRIU in the container's cgroup, and there its processes
// are to stay.
func (r *restoration) leaveCgroups(bundleDir string) error {
	if !cgroup.Unified() {
		return nil
	}
	file := filepath.Join(r.workPath, "criu.conf")
	if err := os.WriteFile(file, []byte("manage-cgroups=ignore\n"), 0o600); err != nil {
		return err
	}
	return bundle.Annotate(bundleDir, criuConfig, file)
}

// startRestored lets the runtime make the process of a checkpoint, which runs then.
func (p *process) startRestored(ctx context.Context) error {
	c, r := p.container, p.restore
	if err := os.MkdirAll(r.workPath, 0o700); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(r.workPath)
	if err := r.leaveCgroups(c.dir); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	refused := false
	child, master, err := c.make(ctx, &r.first, func(ctx context.Context, o *runc.CreateOpts) error {
		_, err := c.runtime.Restore(ctx, c.id, c.dir, &runc.RestoreOpts{
			CheckpointOpts: runc.CheckpointOpts{ImagePath: r.images, WorkDir: r.workPath, FileLocks: true},
			Detach:         true, PidFile: o.PidFile, NoPivot: o.NoPivot, IO: o.IO, ConsoleSocket: o.ConsoleSocket,
		})
		refused = err != nil
		return err
	})
	if refused {
		return c.criuError(ctx, err, filepath.Join(r.workPath, restoreLog))
	}
	if err != nil {
		return err
	}
	p.master = master
	p.watch(child)
	return nil
}
