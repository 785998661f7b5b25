package wasm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	heap "github.com/sunaba-project/sunaba/shim/memory"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/engine"
)

// exitStart is the exit code when there was nothing to run, as of a container that failed to start.
// Codes of signals are counted from it.
const exitStart = 128

// RunOptions is what a module is run with.
type RunOptions struct {
	Name        string // what the guest is called by, its first argument
	File        string
	Args        []string // its arguments, after its own name
	Env         []string
	Dirs        []specs.Mount // one that is mounted at / is the root itself, and the only one
	Workdir     string        // "" is /
	Listen      []Listener
	HostNetwork bool  // it is in the node's network; else in one of its own, of which nothing leads out
	Memory      int64 // limit in bytes, 0 = none
	User        *User // nil = nobody
	Systemd     bool  // systemd makes the cgroups
	StopWait    bool  // a guest that cannot hear a stop has its grace period too
	Grace       time.Duration
	Stdin       *os.File // nil = none
	Stdout      *os.File
	Stderr      *os.File
	Notes       io.Writer // for people
}

// Run runs a module as the only guest of an engine in this process, and returns its exit code.
// SIGINT, SIGTERM and SIGHUP ask it to stop; it is killed when it is asked again, and at the end of
// the grace period.
//
// # Errors
//
// Those of the engine. Nothing is left but the compiled module.
func (n Node) Run(ctx context.Context, o RunOptions) (code int, err error) {
	// Most runs end before there are 16 MiB. One that lasts gives back what its start needed.
	debug.SetGCPercent(400)
	defer time.AfterFunc(time.Second, heap.GiveBack).Stop()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)
	// A guest knows no signals, and is not this terminal's: stopping this process would leave it
	// running.
	signal.Ignore(unix.SIGTSTP)
	r, err := reaper.New()
	if err != nil {
		return exitStart, err
	}
	defer r.Close()
	e, err := engine.New(engine.Options{Self: n.Shim, CacheDir: n.Cache}, r)
	if err != nil {
		return exitStart, err
	}
	bundle, err := o.bundle()
	if err != nil {
		return exitStart, err
	}
	bundle.Facts.OptimizeGo = n.OptimizeGo
	if err := sweep(); err != nil {
		return exitStart, err
	}
	c, err := n.create(ctx, e, bundle, o)
	if err != nil {
		return unstarted(ctx, signals), err
	}
	code, err = o.attend(c, signals)
	return code, errors.Join(err, c.Delete(context.WithoutCancel(ctx)))
}

// create makes the container, and says so while it takes long.
func (n Node) create(ctx context.Context, e *engine.Engine, b *shim.Bundle, o RunOptions) (_ shim.Container, err error) {
	var size int64
	file, err := regular.Open(o.File)
	if err == nil { // otherwise the engine says what is wrong with it
		defer file.Close()
		if info, err := file.Stat(); err == nil {
			size = info.Size()
		}
		if digest := n.digest(file); digest != "" { // of what is open, whatever has its name by now
			b.Facts.Module = annotation.Module{Path: fmt.Sprintf("/proc/self/fd/%d", file.Fd()), Digest: digest.String()}
		}
	}
	defer tellCompiling(o.Notes, o.Name, size, tellTimes())(&err)
	return e.Create(ctx, b, shim.IO{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr}, shim.Options{})
}

// unstarted is the exit code when there is no guest: that of a signal if it was the reason.
func unstarted(ctx context.Context, signals <-chan os.Signal) int {
	if ctx.Err() == nil {
		return exitStart
	}
	select {
	case sig := <-signals:
		return exitStart + int(sig.(syscall.Signal))
	default:
		return exitStart
	}
}

// attend starts the guest and returns how it ended.
func (o RunOptions) attend(c shim.Container, signals <-chan os.Signal) (int, error) {
	p, ctx := c.Init(), context.Background()
	if err := p.Start(ctx); err != nil {
		return exitStart, err
	}
	var over, hint <-chan time.Time
	asked := false
	kill := func(sig syscall.Signal) error {
		if err := p.Signal(ctx, sig, true); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		return nil
	}
	for {
		var err error
		select {
		case <-p.Exited():
			return o.ended(p.Exit()), nil
		case <-signals:
			if asked {
				err = kill(unix.SIGKILL)
				break
			}
			asked, over, hint = true, time.After(o.Grace), time.After(time.Second)
			err = kill(unix.SIGTERM)
		case <-hint:
			fmt.Fprintf(o.Notes, "sunaba: the guest was asked to stop and has %s; once more kills it\n", o.Grace)
		case <-over:
			err = kill(unix.SIGKILL)
		}
		if err != nil {
			return exitStart, errors.Join(err, kill(unix.SIGKILL))
		}
	}
}

// ended is the exit code. What the guest process could not tell itself is told.
func (o RunOptions) ended(e shim.Exit) int {
	switch {
	case e.OOMKilled && e.Message == "":
		fmt.Fprintln(o.Notes, "sunaba: the guest was killed for lack of memory")
	case e.Code > 255:
		fmt.Fprintf(o.Notes, "sunaba: the guest's exit code is %d\n", e.Code)
	case e.Message != "" && (e.Code != exitTrap || e.OOMKilled):
		fmt.Fprintln(o.Notes, "sunaba:", e.Message)
	}
	return int(e.Code)
}

// exitTrap is the exit code of a guest that trapped; its stack is on standard error by then.
const exitTrap = 134

// bundle is what the engine is to run. It has no folder: the guest's root is an empty tree with the
// mounts in it.
func (o RunOptions) bundle() (*shim.Bundle, error) {
	file, err := filepath.Abs(o.File)
	if err != nil {
		return nil, err
	}
	root, err := o.root()
	if err != nil {
		return nil, err
	}
	id := runName(os.Getpid())
	spec := &specs.Spec{
		Version:  specs.Version,
		Process:  &specs.Process{Args: append([]string{o.Name}, o.Args...), Env: o.Env, Cwd: cmp.Or(o.Workdir, "/")},
		Hostname: "sunaba",
		Mounts:   o.Dirs,
		Linux: &specs.Linux{
			CgroupsPath: "/" + id,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
		},
	}
	if o.Systemd {
		spec.Linux.CgroupsPath = "system.slice:sunaba:" + strconv.Itoa(os.Getpid())
	}
	b := &shim.Bundle{ID: id, Namespace: "sunaba", Path: "/", Spec: spec}
	if root != nil {
		b.Rootfs, spec.Mounts = root.Source, nil
		spec.Root = &specs.Root{Path: root.Source, Readonly: slices.Contains(root.Options, "ro")}
	}
	switch {
	case o.HostNetwork && root == nil: // no mount points are made in a folder of the user's
		spec.Mounts = append(spec.Mounts, names()...)
	case !o.HostNetwork:
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	if o.Memory > 0 {
		spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &o.Memory}}
	}
	if o.User != nil {
		spec.Process.User = specs.User{UID: o.User.UID, GID: o.User.GID}
	}
	b.Facts = annotation.Facts{Module: annotation.Module{Path: file}, Listeners: o.Listen, StopWait: o.StopWait}
	return b, nil
}

// root is the folder that is the guest's root, nil without one.
func (o RunOptions) root() (*specs.Mount, error) {
	for i := range o.Dirs {
		if o.Dirs[i].Destination != "/" {
			continue
		}
		if len(o.Dirs) > 1 {
			return nil, fmt.Errorf("the directory %q is the guest's root, and no other can be in it: say where the guest has it, as in .:/work: %w",
				o.Dirs[i].Source, errdefs.ErrInvalidArgument)
		}
		return &o.Dirs[i], nil
	}
	return nil, nil
}

// names are the node's files by which names are resolved in its network.
func names() []specs.Mount {
	var mounts []specs.Mount
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			mounts = append(mounts, bind(file, file, true))
		}
	}
	return mounts
}
