package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

const (
	serverDir = "tests/bench/wasm/server"
	stockCLI  = "github.com/tetratelabs/wazero/cmd/wazero"
)

// asker asks a server as fast as it answers.
type asker interface {
	run(length time.Duration) (rate float64, err error) // in requests per second
	close()
}

// askers are the kinds of clients. The bare one uses next to nothing of the processors that the
// servers share with it.
var askers = []struct {
	name string
	dial func(ctx context.Context, address string, count int) (asker, error)
}{
	{"a bare client", func(ctx context.Context, address string, count int) (asker, error) { return dial(ctx, address, count) }},
	{"Go's net/http client", ordinary},
}

// server is one of those that are compared, in a pod of its own.
type server struct {
	name   string
	image  string
	runs   string            // the handler
	marked map[string]string // annotations of the pod
	spins  bool              // it uses the processor when nobody asks
	pod    *pod
	asking []asker

	rates, costs [][]float64 // of each client: requests per second, µs of processor time for one
}

// servers runs one server four times: as a guest, built for Linux, as a guest of wazero's own
// command and WASI, which is a Linux program, and as a guest whose functions are rewritten.
func (b *bench) servers(ctx context.Context, n *node.Node, registry *oci.Registry) ([]*server, error) {
	guest, err := oci.BuildGo(ctx, serverDir, oci.Wasip1)
	if err != nil {
		return nil, err
	}
	native, err := oci.BuildGo(ctx, serverDir, oci.Host())
	if err != nil {
		return nil, err
	}
	stock, err := b.buildStock(ctx, guest)
	if err != nil {
		return nil, err
	}
	all := []*server{{name: "guest", runs: "wasm"}, {name: "native", runs: "runc"}, {name: "stock", runs: "runc", spins: true},
		{name: "rewritten", runs: "wasm", marked: map[string]string{annotation.OptimizeGo: "true"}}}
	for _, s := range all {
		switch s.name {
		case "guest", "rewritten":
			s.image, err = push(ctx, registry, n, s.name, oci.Wasip1, guest)
		case "native":
			s.image, err = push(ctx, registry, n, s.name, oci.Host(), native)
		case "stock":
			s.image, err = pushFiles(ctx, registry, n, s.name, oci.Host(),
				v1.Config{Entrypoint: []string{"/wazero", "run", "-cachedir=/stock", "-listen=:8080", "-env=LISTEN_FDS=1", "/server.wasm"}}, stock...)
		}
		if err != nil {
			return all, err
		}
		if err := s.start(ctx, n, b.conns); err != nil {
			return all, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return all, nil
}

// buildStock builds the command of the version of wazero that go.mod names, has it compile the
// guest, and returns what the image of both holds.
func (b *bench) buildStock(ctx context.Context, guest []byte) ([]oci.File, error) {
	command, module, cache := filepath.Join(b.dir, "wazero"), filepath.Join(b.dir, "server.wasm"), filepath.Join(b.dir, "stock")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", command, stockCLI)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %q: %w\n%s", stockCLI, err, said)
	}
	program, err := os.ReadFile(command)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(module, guest, 0o644); err != nil {
		return nil, err
	}
	if said, err := exec.CommandContext(ctx, command, "compile", "-cachedir="+cache, module).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile by stock wazero: %w\n%s", err, said)
	}
	compiled, err := filepath.Glob(filepath.Join(cache, "*", "*"))
	if err != nil || len(compiled) != 1 {
		return nil, fmt.Errorf("find what stock wazero has compiled: %q, %v", compiled, err)
	}
	code, err := os.ReadFile(compiled[0])
	if err != nil {
		return nil, err
	}
	inside, err := filepath.Rel(b.dir, compiled[0])
	if err != nil {
		return nil, err
	}
	return []oci.File{oci.Program("wazero", program), oci.Program("server.wasm", guest), oci.Program(inside, code)}, nil
}

// start runs its pod and connects a client of each kind.
func (s *server) start(ctx context.Context, n *node.Node, conns int) (err error) {
	if s.pod, err = runPod(ctx, n, s.runs, s.image, "http-"+s.name, s.marked); err != nil {
		return err
	}
	if err := s.pod.awaitUp(ctx); err != nil {
		return err
	}
	for _, a := range askers {
		one, err := a.dial(ctx, s.pod.address, conns)
		if err != nil {
			return err
		}
		s.asking = append(s.asking, one)
	}
	s.rates, s.costs = make([][]float64, len(askers)), make([][]float64, len(askers))
	return s.pause()
}

// pause stops a server that uses the processor when nobody asks, until resume.
func (s *server) pause() error  { return s.signal(unix.SIGSTOP) }
func (s *server) resume() error { return s.signal(unix.SIGCONT) }

func (s *server) signal(sig unix.Signal) error {
	if !s.spins {
		return nil
	}
	return unix.Kill(s.pod.process, sig)
}

// turn has one client ask for that long, and records the result if it counts.
func (s *server) turn(client int, length time.Duration, counts bool) error {
	if err := s.resume(); err != nil {
		return err
	}
	before, err := cpuTime(s.pod.process)
	if err != nil {
		return err
	}
	rate, err := s.asking[client].run(length)
	if err != nil {
		return err
	}
	after, err := cpuTime(s.pod.process)
	if err != nil {
		return err
	}
	if counts {
		s.rates[client] = append(s.rates[client], rate)
		s.costs[client] = append(s.costs[client], float64((after-before).Nanoseconds())/1e3/(rate*length.Seconds()))
	}
	return s.pause()
}

// close ends its clients. The pod ends with the node, and has to be able to.
func (s *server) close() {
	for _, a := range s.asking {
		a.close()
	}
	if s.pod != nil {
		_ = s.resume() // it has ended if something went wrong
	}
}
