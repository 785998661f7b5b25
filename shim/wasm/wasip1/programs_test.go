package wasip1

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
	"github.com/sunaba-project/sunaba/tests/node"
)

// goGuest compiles a Go program in testdata.
func goGuest(t testing.TB, folder string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-o", out, "./testdata/"+folder)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath")
	return wasitest.Build(t, cmd, out)
}

// cGuest compiles a C program in testdata with the system's clang and wasi-libc.
func cGuest(t testing.TB, file string) []byte {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("clang, wasi-libc and lld are needed: ", err)
	}
	out := filepath.Join(t.TempDir(), "guest.wasm")
	return wasitest.Build(t, exec.Command("clang", "--target=wasm32-wasi", "-O1", "-o", out, "testdata/"+file), out)
}

// wasi-libc counts the preopens past the listeners, and its library works.
func TestC(t *testing.T) {
	g := guest{
		module: cGuest(t, "preopens.c"), args: []string{"prog", "argument"}, env: []string{"NAME=value"},
		root: t.TempDir(), listeners: []Listener{listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")},
	}
	code, stdout, stderr := g.run(t)
	if code != 7 || string(stdout) != "done\n" {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// So does Go's runtime, and its os package.
func TestGo(t *testing.T) {
	module := goGuest(t, "program")
	for _, interrupt := range []bool{false, true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ring := make(chan struct{})
		go func() {
			w.Write(make([]byte, 100000))
			if interrupt {
				time.Sleep(50 * time.Millisecond)
				close(ring)
				return
			}
			w.Close()
		}()
		g := guest{
			module: module, args: []string{"prog"}, root: t.TempDir(), stdin: r, interrupt: ring,
			listeners: []Listener{listen(t, "127.0.0.1:0")},
		}
		code, stdout, stderr := g.run(t)
		want := "content moved content 9 1000000000005 6\n10\ninput: 100000\n"
		if code != 0 || string(stdout) != want {
			t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
		}
		r.Close()
		if interrupt {
			w.Close()
		}
	}
}

// server runs the HTTP server guest. Its stop interrupts it and returns its exit code and output.
func server(t testing.TB) (url string, stop func() (uint32, string)) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	ring, done := make(chan struct{}), make(chan struct{})
	g := guest{module: goGuest(t, "server"), args: []string{"server"}, listeners: []Listener{l}, interrupt: ring}
	var code uint32
	var text string
	go func() {
		defer close(done)
		var stdout, stderr []byte
		code, stdout, stderr = g.run(t)
		text = string(stdout) + string(stderr)
	}()
	return "http://" + l.Name, func() (uint32, string) {
		close(ring)
		<-done
		return code, text
	}
}

func TestHTTP(t *testing.T) {
	url, stop := server(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: node.Slow(2 * time.Minute)}
	big := bytes.Repeat([]byte("0123456789"), 30000)
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			for j := range 10 {
				var answer *http.Response
				var err error
				want := "hello\n"
				if (i+j)%10 == 0 {
					want = string(big)
					answer, err = client.Post(url+"/echo", "text/plain", bytes.NewReader(big))
				} else {
					answer, err = client.Get(url)
				}
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || string(got) != want {
					t.Errorf("answer of %d bytes: %v", len(got), err)
				}
			}
		})
	}
	group.Wait()

	// With 50 connections open and nothing to do, nothing is done. A loop that polls would use all
	// of every second; what there was to do before may take its time, and a busy machine adds
	// something.
	for try := 1; ; try++ {
		before := cpu(t)
		time.Sleep(time.Second)
		used := cpu(t) - before
		if used <= 200*time.Millisecond {
			break
		}
		if try == 20 {
			t.Errorf("an idle server used %v of CPU time in a second", used)
			break
		}
	}

	code, text := stop()
	if code != 0 || !strings.Contains(text, "serve:") {
		t.Errorf("code %d, output %q", code, text)
	}
}

// cpu is the time this process has used.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestMain lets the test binary be the guest process of BenchmarkHTTP: WASIP1_GUEST is its module,
// the listener is descriptor 3.
func TestMain(m *testing.M) {
	path := os.Getenv("WASIP1_GUEST")
	if path == "" {
		os.Exit(m.Run())
	}
	module, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	h, err := New(Config{Stdin: -1, Stdout: 1, Stderr: 2, Listeners: []Listener{{FD: 3, Name: "listener"}}})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	if err := h.Instantiate(ctx, r); err != nil {
		panic(err)
	}
	_, err = r.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig())
	panic(err)
}

// BenchmarkHTTP is requests over 16 connections that stay open: to a guest in a process of its own,
// and to the same server without WebAssembly.
func BenchmarkHTTP(b *testing.B) {
	dir := b.TempDir()
	native, guest := filepath.Join(dir, "server"), filepath.Join(dir, "server.wasm")
	wasitest.Build(b, exec.Command("go", "build", "-o", native, "./testdata/server"), native)
	if err := os.WriteFile(guest, goGuest(b, "server"), 0o644); err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("guest", func(b *testing.B) { requests(b, exec.Command(self), "WASIP1_GUEST="+guest) })
	b.Run("native", func(b *testing.B) { requests(b, exec.Command(native), "") })
}

func requests(b *testing.B, cmd *exec.Cmd, env string) {
	l := listen(b, "127.0.0.1:0")
	file := os.NewFile(uintptr(l.FD), "listener")
	cmd.ExtraFiles, cmd.Stderr, cmd.Env = []*os.File{file}, os.Stderr, append(os.Environ(), env)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	file.Close()
	defer cmd.Wait()
	defer cmd.Process.Kill()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	get := func() error {
		answer, err := client.Get("http://" + l.Name)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	if err := get(); err != nil { // when it answers, it has started
		b.Fatal(err)
	}
	b.ResetTimer()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := get(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}
