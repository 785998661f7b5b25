// Package enginetest is the conformance suite of shim.Engine: what every engine has to do alike,
// whatever a program is to it. Each engine's own tests call Run.
package enginetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
)

// patience is how long anything may take before a test gives up.
const patience = time.Minute

// Kind of a test program.
type Kind int

// The programs an engine is tested with.
const (
	Exit    Kind = iota // ends with Code
	Echo                // writes Text to standard output, as it is, and ends with 0
	Sleep               // writes "ready\n" and then does nothing until it is killed
	Lines               // writes N lines "line <i>\n", i from 0, and ends with 0
	Env                 // writes the value of environment variable Text and a newline
	Cat                 // copies standard input to standard output until its end, and ends with Code
	Missing             // is not there at all
)

// Program is what a bundle should run.
type Program struct {
	Kind Kind
	Code int
	Text string
	N    int
	Env  []string // NAME=value, in addition to what the program needs
}

// Harness is what the suite knows of an engine.
type Harness struct {
	Engine shim.Engine
	// Options are passed to Create.
	Options shim.Options
	// Bundle makes a bundle with a mounted root, whose id is unique and whose cgroup is
	// CgroupParent/<id>. What it makes goes with the test.
	Bundle func(t *testing.T, id string, p Program) *shim.Bundle
	// Process makes a process to execute in a container made by Bundle; nil if the engine executes
	// none.
	Process func(t *testing.T, p Program) *specs.Process
	// WasmCache is where a shim has compiled modules, see RunAdopted; "" = its default.
	WasmCache string
	// Beside is how many bytes the memory limit of a cgroup may be above its container's at most.
	Beside int64
	// CanPause says that the engine freezes containers.
	CanPause bool

	Launch   bool          // the engine is a shim.Launcher, and its runtime can do it
	launcher shim.Launcher // nil = containers are created
}

// CgroupParent is the cgroup that the groups of this process's test containers are in: tests of
// other packages, which run meanwhile, remove theirs. A bundle's cgroupsPath is CgroupParent + "/" + id.
var CgroupParent = "/sunaba-enginetest-" + strconv.Itoa(os.Getpid())

// NewID returns an id of the form the CRI server gives.
func NewID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// NeedRoot fails a test that cannot work without root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root")
	}
}

// streams are the test's ends of a process's standard streams.
type streams struct {
	files  []*os.File // child's ends
	stdin  *os.File
	stdout *collector
	stderr *collector
}

// collector reads until the end of file.
type collector struct {
	done chan struct{}
	mu   sync.Mutex
	buf  bytes.Buffer
}

func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(p)
}

// has says whether the output so far contains a text.
func (c *collector) has(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.buf.Bytes(), []byte(text))
}

func collect(r *os.File) *collector {
	c := &collector{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer r.Close()
		_, _ = io.Copy(c, r)
	}()
	return c
}

// text waits for the end of the output.
func (c *collector) text(t *testing.T) string {
	t.Helper()
	select {
	case <-c.done:
		return c.buf.String()
	case <-time.After(patience):
		t.Fatal("output does not end")
		return ""
	}
}

// open makes the streams of one process.
func open(t *testing.T) (*streams, shim.IO) {
	t.Helper()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	return &streams{files: []*os.File{inR, outW, errW}, stdin: inW, stdout: collect(outR), stderr: collect(errR)},
		shim.IO{Stdin: inR, Stdout: outW, Stderr: errW}
}

// handOver closes the child's ends, once the child has its own.
func (s *streams) handOver() {
	for _, f := range s.files {
		f.Close()
	}
}

// wait waits for a process's exit.
func wait(t *testing.T, p shim.Process) shim.Exit {
	t.Helper()
	select {
	case <-p.Exited():
		return p.Exit()
	case <-time.After(patience):
		t.Fatalf("process %d does not end", p.Pid())
		return shim.Exit{}
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
