package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/cage"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
)

// job is what a child does: it compiles a module and runs it, once or several times.
type job struct {
	Module string
	Form   form
	Trees  []string // read-only, seen by guests under their own names
	Writes string   // the only directory that this process can change: it holds the roots and outputs
	Runs   []run
}

// form is what is done to a module before it is compiled.
type form int

const (
	asBuilt form = iota // nothing
	folded              // functions are rewritten as in modules that accept no connections
	served              // functions are rewritten as in modules that accept connections
)

// run is one run of a module.
type run struct {
	Args   []string
	Env    []string
	Root   string // what the guest sees as "/"
	Output string // the file that receives what it writes
	CPU    uint64 // seconds of processor time
}

// report is what a child tells in one line: of the module first, then of each run.
type report struct {
	Compiled *gowasm.Result `json:",omitempty"`
	Invalid  string         `json:",omitempty"` // why the module does not compile
	Milli    int64          // the time that it took
	Ran      *ending        `json:",omitempty"`
}

// ending is what is compared of a run beside its output. Time, randomness and files are the same in
// each run, so these are.
type ending struct {
	Code   uint32
	Trap   string
	Stack  string `json:",omitempty"` // of the trap; it is not compared
	Calls  uint64 // of host functions
	Trace  uint64 // a sum of them, their operands and results
	Pages  uint32 // of memory, at the end
	Memory uint32 // a sum of it
}

// memoryPages bounds a guest's memory: 2 GiB.
const memoryPages = 32768

// epoch is the moment at which every run starts: the first of January 2026.
const epoch = 1767225600 * int64(time.Second)

// rootAge is how long before its child a root may have been made.
const rootAge = time.Minute

// tick is what passes from one look at the clock to the next.
const tick = int64(time.Microsecond)

// guestMain does the job on standard input, and reports to standard output.
func guestMain() int {
	c := &child{out: json.NewEncoder(os.Stdout), begun: time.Now().Add(-rootAge)}
	if err := json.NewDecoder(os.Stdin).Decode(&c.job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	module, err := os.ReadFile(c.Module)
	if err == nil {
		err = c.confine()
	}
	if err == nil {
		err = c.work(module)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child does a job.
type child struct {
	job
	begun time.Time // no root is older
	out   *json.Encoder
}

func (c *child) tell(r report) {
	_ = c.out.Encode(r) // whoever misses it says so
}

// confine leaves this process the trees that its guests see. What they run is the standard
// library's, but links in their roots lead where they lead.
func (c *child) confine() error {
	var trees []cage.Tree
	for i, dir := range append([]string{c.Writes}, c.Trees...) {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %q: %w", dir, err)
		}
		defer unix.Close(fd)
		trees = append(trees, cage.Tree{FD: fd, ReadOnly: i > 0})
	}
	if err := cage.AllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return cage.Confine(trees)
}

// work compiles the module and runs it.
func (c *child) work(module []byte) error {
	if err := endLate(); err != nil {
		return err
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(memoryPages))
	var t trace
	if _, err := wasi_snapshot_preview1.NewBuilder(r).Instantiate(experimental.WithFunctionListenerFactory(ctx, &t)); err != nil {
		return err
	}
	if len(c.Runs) > 0 {
		limitCPU(c.Runs[0].CPU)
	}
	begun := time.Now()
	var count gowasm.Result
	var err error
	if c.Form != asBuilt {
		if module, count, err = gowasm.Rewrite(module, c.Form == served); err != nil {
			return err
		}
	}
	compiled, err := r.CompileModule(ctx, module)
	told := report{Compiled: &count, Milli: time.Since(begun).Milliseconds()}
	if err != nil {
		told.Invalid = err.Error()
	}
	c.tell(told)
	if err != nil {
		return nil
	}
	for _, one := range c.Runs {
		limitCPU(one.CPU)
		begun := time.Now()
		t.ending = ending{}
		if err := c.run(ctx, r, compiled, one, &t); err != nil {
			return err
		}
		done := t.ending
		c.tell(report{Ran: &done, Milli: time.Since(begun).Milliseconds()})
	}
	return nil
}

// run runs the guest to its end.
func (c *child) run(ctx context.Context, r wazero.Runtime, compiled wazero.CompiledModule, one run, t *trace) error {
	output, err := os.Create(one.Output)
	if err != nil {
		return err
	}
	defer output.Close()
	bounded := &bounded{w: output, left: maxOutput}
	var now int64
	look := func() int64 { now += tick; return now }
	trees := wazero.NewFSConfig().(sysfs.FSConfig).WithSysFSMount(newSteadyFS(sysfs.DirFS(one.Root), c.begun, false), "/")
	for _, dir := range c.Trees {
		trees = trees.(sysfs.FSConfig).WithSysFSMount(&sysfs.ReadFS{FS: newSteadyFS(sysfs.DirFS(dir), c.begun, true)}, dir)
	}
	config := wazero.NewModuleConfig().WithName("").WithArgs(one.Args...).WithStdout(bounded).WithStderr(bounded).
		WithFSConfig(trees).WithRandSource(rand.NewChaCha8([32]byte{})).
		WithNanotime(look, 1).WithNanosleep(func(ns int64) { now += ns }).
		WithWalltime(func() (int64, int32) {
			at := epoch + look()
			return at / int64(time.Second), int32(at % int64(time.Second))
		}, 1)
	for _, pair := range one.Env {
		name, value, _ := strings.Cut(pair, "=")
		config = config.WithEnv(name, value)
	}
	guest, err := r.InstantiateModule(ctx, compiled, config)
	var exit *sys.ExitError
	switch {
	case err == nil:
		return guest.Close(ctx)
	case errors.As(err, &exit):
		t.Code = exit.ExitCode()
	default:
		t.Trap, t.Stack, _ = strings.Cut(err.Error(), "\n")
	}
	return nil
}

// limitCPU lets this process have so many seconds more.
func limitCPU(seconds uint64) {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	limit := unix.Rlimit{Cur: uint64(used.Utime.Sec+used.Stime.Sec) + 1 + seconds, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_CPU, &limit) // whoever waits for this process has a limit too
}

// endLate lets the kernel end this process when it has used what it may. A handler in Go would
// never run while the collector waits for a guest that calls nothing.
func endLate() error {
	var ends [4]uint64 // a struct sigaction: SIG_DFL, which is to end
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGXCPU), uintptr(unsafe.Pointer(&ends)), 0, 8, 0, 0); errno != 0 {
		return fmt.Errorf("set the action of SIGXCPU: %w", errno)
	}
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}

// maxOutput bounds what is kept of a guest's output.
const maxOutput = 64 << 20

// bounded writes so much, and swallows the rest.
type bounded struct {
	w    io.Writer
	left int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	if _, err := b.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// trace listens to the calls of host functions.
type trace struct{ ending }

// NewFunctionListener implements experimental.FunctionListenerFactory.
func (t *trace) NewFunctionListener(api.FunctionDefinition) experimental.FunctionListener { return t }

// Before implements experimental.FunctionListener.
func (t *trace) Before(_ context.Context, mod api.Module, def api.FunctionDefinition, params []uint64, _ experimental.StackIterator) {
	t.Calls++
	name := def.ExportNames()[0]
	for i := range len(name) {
		t.add(uint64(name[i]))
	}
	for i, kind := range def.ParamTypes() {
		t.add(known(params[i], kind))
	}
	if name == "proc_exit" {
		if all, ok := mod.Memory().Read(0, mod.Memory().Size()); ok {
			t.Pages, t.Memory = mod.Memory().Size()>>16, crc32.Checksum(all, crc32.MakeTable(crc32.Castagnoli))
		}
	}
}

// After implements experimental.FunctionListener.
func (t *trace) After(_ context.Context, _ api.Module, def api.FunctionDefinition, results []uint64) {
	for i, kind := range def.ResultTypes() {
		t.add(known(results[i], kind))
	}
}

// Abort implements experimental.FunctionListener.
func (t *trace) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}

// known is a value without the bits that its type does not have.
func known(value uint64, kind api.ValueType) uint64 {
	if kind == api.ValueTypeI32 || kind == api.ValueTypeF32 {
		return uint64(uint32(value))
	}
	return value
}

// add adds to the sum (FNV-1a, by words).
func (t *trace) add(value uint64) {
	const prime = 1099511628211
	t.Trace = (t.Trace ^ value) * prime
	t.Trace ^= t.Trace >> 29
}
