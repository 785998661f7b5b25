// Package compiler has WebAssembly modules compiled ahead of their start: a few at a time, in a
// cgroup of their own with limits, which is there while there is work.
//
// What a module's compilation writes, and what it reads of it for the guests to come, is page cache
// of that cgroup: the first pod that runs the module does not pay for what all of them share.
package compiler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/images/singleflight"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Options of a Compiler.
type Options struct {
	Cgroups *cgroup.Manager
	Root    string // folder of the server, whose compilations have a cgroup of their own
	Shim    string // binary with the compile face
	Cache   string // folder of compiled modules
	// OptimizeGo has the functions of Go's modules rewritten.
	OptimizeGo bool
	Limits     Limits
	Logger     *slog.Logger
}

// Limits bound all compilations of the server together.
type Limits struct {
	Parallel int    // how many at a time; 0 = by the machine's processors
	Memory   uint64 // in bytes; 0 = by the machine's memory
}

// Compiler is safe for concurrent use.
type Compiler struct {
	o      Options
	name   string // tells this server's cgroups from other servers'
	parent string
	turns  chan struct{}

	mu    sync.Mutex
	busy  int             // compilations that the parent is there for
	count int             // of all so far
	known map[string]bool // modules that were compiled or refused

	flights singleflight.Group[struct{}] // of Ready
}

const (
	endLimit    = 10 * time.Second // for what was killed to end
	shares      = 128              // of the processors: pods come first
	period      = 100_000          // in microseconds
	leastMemory = 1 << 30
)

// New makes a Compiler, and ends what an earlier server's compilations left.
func New(o Options) (*Compiler, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, fmt.Errorf("read the machine's memory: %w", err)
	}
	o.Limits = o.Limits.resolve(runtime.NumCPU(), uint64(info.Totalram)*uint64(info.Unit))
	sum := sha256.Sum256([]byte(filepath.Clean(o.Root)))
	name := hex.EncodeToString(sum[:4])
	c := &Compiler{
		o: o, name: name, parent: o.Cgroups.CompilerParent(name),
		turns: make(chan struct{}, o.Limits.Parallel), known: map[string]bool{},
	}
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	_, err := o.Cgroups.EndAll(ctx, c.parent)
	if err := errors.Join(err, o.Cgroups.RemovePod(c.parent)); err != nil {
		return nil, fmt.Errorf("end compilations of an earlier server: %w", err)
	}
	return c, nil
}

// resolve fills in what is by the machine: half of its processors, at least two turns, so that one
// long compilation does not keep all others waiting; and a quarter of its memory, but what a large
// module needs.
func (l Limits) resolve(processors int, memory uint64) Limits {
	const most = 8
	l.Parallel = cmp.Or(l.Parallel, min(max(2, processors/2), most))
	l.Memory = cmp.Or(l.Memory, max(memory/4, min(leastMemory, memory/2)))
	return l
}

// Compile has the module at path compiled. It is killed, with all its processes, when ctx ends.
//
// # Errors
//
// Those of client.Compile.
func (c *Compiler) Compile(ctx context.Context, path, digest string) (err error) {
	ctx, span := trace.Start(ctx, "compile module")
	span.Text(trace.Digest, digest)
	defer func() { span.End(err) }()
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for other compilations: %w", ctx.Err())
	}
	defer func() { <-c.turns }()
	leaf, err := c.enter()
	if err != nil {
		return err
	}
	defer func() { c.leave(leaf, digest, ctx.Err() == nil) }()
	o := client.CompileOptions{Binary: c.o.Shim, CacheDir: c.o.Cache, Module: path, Digest: digest, OptimizeGo: c.o.OptimizeGo, Memory: c.o.Limits.Memory}
	if c.o.Cgroups.Driver == cgroup.Systemd { // makes a scope of its first process
		o.Place = func(pid int) error { return c.o.Cgroups.PlaceFamily(leaf, pid) }
	} else {
		o.Born = func(attr *syscall.SysProcAttr) (func(), error) { return c.o.Cgroups.Born(leaf, attr) }
	}
	return client.Compile(ctx, o)
}

// Ready is Compile before a container's start, once for each module: what an earlier server
// compiled is read, what is missing is made. With path "" it is only read. What does not work is
// the start's to tell.
func (c *Compiler) Ready(ctx context.Context, path, digest string) {
	if c.isKnown(digest) {
		return
	}
	_, err := c.flights.Do(ctx, digest, func(ctx context.Context) (struct{}, error) {
		if c.isKnown(digest) {
			return struct{}{}, nil
		}
		return struct{}{}, c.Compile(ctx, path, digest)
	})
	if err != nil {
		c.o.Logger.Debug("failed to compile module", "module", digest, "error", err)
	}
}

// Drop removes what is kept of a module.
func (c *Compiler) Drop(ctx context.Context, digest string) error {
	c.mu.Lock()
	delete(c.known, digest)
	c.mu.Unlock()
	return client.DropCompiled(ctx, c.o.Shim, c.o.Cache, digest)
}

// isKnown says whether this server has compiled the module, or failed to.
func (c *Compiler) isKnown(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[digest]
}

// enter makes sure that the parent is there, with its limits, and returns the leaf of a new
// compilation.
func (c *Compiler) enter() (leaf string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == 0 {
		if err := c.o.Cgroups.MakePod(c.parent); err != nil {
			return "", fmt.Errorf("make cgroup of compilations: %w", err)
		}
		limits := cgroup.Limits{Shares: shares, Quota: uint64(c.o.Limits.Parallel) * period, Period: period, Memory: c.o.Limits.Memory}
		if err := c.o.Cgroups.LimitPod(c.parent, limits); err != nil {
			return "", errors.Join(fmt.Errorf("limit compilations: %w", err), c.o.Cgroups.RemovePod(c.parent))
		}
	}
	c.busy++
	c.count++
	return c.o.Cgroups.Leaf(c.parent, "compiler-"+c.name+"-"+strconv.Itoa(c.count)), nil
}

// leave ends what a compilation left and removes its cgroup, and the parent after the last.
func (c *Compiler) leave(leaf, digest string, through bool) {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	err := errors.Join(c.o.Cgroups.End(ctx, leaf), c.o.Cgroups.RemoveLeaf(leaf))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	if through {
		c.known[digest] = true
	}
	if c.busy == 0 {
		err = errors.Join(err, c.o.Cgroups.RemovePod(c.parent))
	}
	if err != nil {
		c.o.Logger.Error("failed to stop compilation", "cgroup", leaf, "error", err)
	}
}
