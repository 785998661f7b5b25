package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/tests/components"
	"github.com/sunaba-project/sunaba/tests/measure"
)

const (
	// round is how long a server is asked without a break.
	round = 2 * time.Second
	// quiet is how long it rests before its memory is read: what a burst took has been given back.
	quiet = 15 * time.Second
	// atRest is how many servers of each kind there are when memory is read.
	atRest = 20
)

// http compares a C component that answers each request with a new instance, here and by `wasmtime
// serve`: requests per second, what the slowest hundredth takes, and memory at rest.
func (b *bench) http(ctx context.Context) error {
	component := filepath.Join(b.dir, "web.wasm")
	if err := b.tools.FromPlainC(ctx, components.Proxy, "tests/components/testdata/web.c", component); err != nil {
		return err
	}
	return b.serve(ctx, "HTTP", component)
}

// service is http for a service of WASI 0.3, which answers a request with its first part before it
// has returned. wasmtime makes an instance for each request too, as it does by itself for 0.2.
func (b *bench) service(ctx context.Context) error {
	component := filepath.Join(b.dir, "service.wasm")
	if err := b.tools.FromText(ctx, "shim/wasm/serve/testdata/service.wat", component); err != nil {
		return err
	}
	return b.serve(ctx, "HTTP of 0.3", component, "-W", "component-model-async", "-W", "component-model-more-async-builtins", "-S", "p3",
		"--max-instance-reuse-count", "1")
}

// serve asks a component here and under wasmtime with the options that it needs there. what starts
// the names of the lines.
func (b *bench) serve(ctx context.Context, what, component string, options ...string) error {
	compiled := component[:len(component)-len(filepath.Ext(component))] + ".cwasm"
	compile := []string{"compile", "-o", compiled}
	for i := 0; i+1 < len(options); i += 2 {
		if options[i] == "-W" {
			compile = append(compile, options[i], options[i+1])
		}
	}
	if out, err := exec.CommandContext(ctx, b.tools.Wasmtime(), append(compile, component)...).CombinedOutput(); err != nil {
		return fmt.Errorf("compile with wasmtime: %w\n%s", err, out)
	}
	// The first of each kind is asked, the others only rest beside it: they share what servers
	// share.
	var servers [2][]*webServer
	for range atRest {
		ports, err := freePorts(2)
		if err != nil {
			return err
		}
		ours := b.ours(component)
		ours = slices.Insert(ours, len(ours)-1, "--listen", ports[0])
		theirs := slices.Concat([]string{b.tools.Wasmtime(), "serve", "--allow-precompiled"}, options, []string{"--addr", ports[1], compiled})
		for i, command := range [][]string{ours, theirs} {
			s := &webServer{address: ports[i], command: command}
			if err := s.start(ctx); err != nil {
				return err
			}
			defer s.stop()
			servers[i] = append(servers[i], s)
		}
	}
	for _, clients := range []int{1, 8} {
		var rates, slow [2][]float64
		for turn := range b.rounds/3 + 1 {
			for i := range servers {
				rate, p99, err := servers[i][0].ask(ctx, clients, round)
				if err != nil {
					return err
				}
				if turn > 0 { // the first one warms up
					rates[i], slow[i] = append(rates[i], rate), append(slow[i], p99)
				}
			}
		}
		b.against(fmt.Sprintf("%s, an instance for each request, %d connections: requests/s, beside wasmtime serve", what, clients), "%.0f", rates, 1, true)
		b.against(fmt.Sprintf("%s, %d connections: slowest hundredth, ms", what, clients), "%.2f", slow, 1.2, false)
	}
	time.Sleep(quiet)
	var memory [2][]float64
	for i := range servers {
		for _, s := range servers[i] {
			bytes, err := s.memory()
			if err != nil {
				return err
			}
			memory[i] = append(memory[i], float64(bytes)/(1<<20))
		}
	}
	ours, theirs := measure.SpreadOf(memory[0]), measure.SpreadOf(memory[1])
	b.table.Add(fmt.Sprintf("%s, at rest among %d: PSS, MiB, beside wasmtime serve", what, atRest), ours.Text("%.2f"), theirs.Text("%.2f"),
		fmt.Sprintf("%.2f", ours.Median/theirs.Median), "≤ 3", ours.Median <= 3)
	b.table.Add("the one that was asked", fmt.Sprintf("%.2f", memory[0][0]), fmt.Sprintf("%.2f", memory[1][0]), "", "", true)
	return nil
}

// against adds a line that compares turns. The goal is a ratio: at least, or at most; 0 = none.
func (b *bench) against(what, format string, turns [2][]float64, goal float64, least bool) {
	ours, theirs, ratio := measure.SpreadOf(turns[0]), measure.SpreadOf(turns[1]), measure.SpreadOf(measure.Ratios(turns[0], turns[1]))
	text, met := fmt.Sprintf("≤ %.1f ×", goal), ratio.Median <= goal
	switch {
	case goal == 0:
		text = ""
	case least:
		text, met = fmt.Sprintf("≥ %.1f ×", goal), ratio.Median >= goal
	}
	b.table.Add(what, ours.Text(format), theirs.Text(format), ratio.Text("%.2f"), text, met)
}

// webServer is a server under measurement.
type webServer struct {
	address string
	command []string
	cmd     *exec.Cmd
}

// start starts it, and waits until it answers.
func (s *webServer) start(ctx context.Context) error {
	s.cmd = exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(os.Interrupt) }
	if err := s.cmd.Start(); err != nil {
		return err
	}
	var err error
	for range 600 {
		if _, _, err = s.ask(ctx, 1, 0); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop()
	return fmt.Errorf("start %q: %w", s.command, err)
}

func (s *webServer) stop() {
	_ = s.cmd.Process.Signal(os.Interrupt)
	_ = s.cmd.Wait() // its code is that of the signal
}

// ask has so many clients ask again as soon as they are answered, over connections that stay open.
// It returns requests per second, and what the slowest hundredth took, in milliseconds.
func (s *webServer) ask(ctx context.Context, clients int, length time.Duration) (float64, float64, error) {
	var mu sync.Mutex
	var took []float64
	var failed error
	var callers sync.WaitGroup
	begun := time.Now()
	for range clients {
		callers.Go(func() {
			own, err := s.client(ctx, begun.Add(length))
			mu.Lock()
			defer mu.Unlock()
			took, failed = append(took, own...), errors.Join(failed, err)
		})
	}
	callers.Wait()
	if failed != nil || len(took) == 0 {
		return 0, 0, errors.Join(failed, fmt.Errorf("%d answers of %q", len(took), s.command))
	}
	slices.Sort(took)
	return float64(len(took)) / time.Since(begun).Seconds(), took[len(took)*99/100], nil
}

func (s *webServer) client(ctx context.Context, until time.Time) (took []float64, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	from := bufio.NewReader(conn)
	for first := true; first || time.Now().Before(until); first = false {
		begun := time.Now()
		if _, err := io.WriteString(conn, "GET /hello HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			return nil, err
		}
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || string(body) != "hello\n" {
			return nil, fmt.Errorf("answer %d %q: %w", response.StatusCode, body, errors.Join(err, errors.New("not hello")))
		}
		took = append(took, milliseconds(time.Since(begun)))
	}
	return took, nil
}

// memory is the PSS of the process that answers: the last one below the one that was started.
func (s *webServer) memory() (int64, error) {
	pid := s.cmd.Process.Pid
	for {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		if err != nil {
			return 0, err
		}
		child := 0
		for _, list := range lists {
			data, err := os.ReadFile(list)
			if err != nil {
				continue // the thread ended
			}
			for _, field := range strings.Fields(string(data)) {
				if child, err = strconv.Atoi(field); err != nil {
					return 0, err
				}
			}
		}
		if child == 0 {
			return measure.PSS(pid)
		}
		pid = child
	}
}

// freePorts are addresses that nothing listens on.
func freePorts(n int) (all []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all, nil
}
