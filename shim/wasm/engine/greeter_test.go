package engine

import (
	"bufio"
	"bytes"
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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// greeterEnv is the same for the guest and the Linux program.
var greeterEnv = []string{"GREETING=Hi", "HOSTNAME=here"}

// TestGreeterBothWays runs the example that serves with and without each step, and compares what
// its clients get and what it says with what the Linux program's do.
func TestGreeterBothWays(t *testing.T) {
	said, logged := greeterOnLinux(t)
	if n := strings.Count(said, "\n"); n < 30 {
		t.Fatalf("the Linux program says %q", said)
	}
	bothWays(t, some(eachStep(), "light", "rewritten"), func(compile.Steps) (*bench, string) {
		p := newPod(t)
		b := newBench(t, "greeter")
		b.inPod(p)
		fillData(t, b.bundle.Rootfs)
		b.bundle.Spec.Process.Env = greeterEnv
		b.bundle.Facts.Listeners = []annotation.Listener{{Name: "http", Port: 8080}}
		b.meanwhile = func(c shim.Container) {
			if got := (client{t, p, b.stdout}).talk(); got != said {
				t.Errorf("clients got\n%s\nfrom the Linux program they get\n%s", got, said)
			}
			signal(t, c.Init(), unix.SIGTERM)
		}
		return b, ""
	}, func(t *testing.T, _ compile.Steps, got ending) {
		if got.code != 0 || got.refused != "" || got.stdout != logged {
			t.Errorf("%+v\nthe Linux program says\n%s", got, logged)
		}
	})
}

// greeterOnLinux returns what clients of the Linux program got, and what it said.
func greeterOnLinux(t *testing.T) (said, logged string) {
	t.Helper()
	program := filepath.Join(shared.dir, "greeter-linux")
	shared.run(t, []string{"GOFLAGS=-buildvcs=false -trimpath", "CGO_ENABLED=0"}, "go", "build", "-o", program, "../../../examples/greeter")
	p, out := newPod(t), newOutput(t)
	cmd := exec.Command(program)
	cmd.Env, cmd.Stdout, cmd.Stderr = greeterEnv, out.theirs, os.Stderr
	var child *reaper.Child
	var err error
	p.do(func() { child, err = shared.reaper.Start(cmd) })
	out.theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	said = client{t, p, out}.talk()
	if err := shared.reaper.Signal(child, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-child.Done
	if code, _ := child.Status(); code != 0 {
		t.Errorf("the Linux program ends with %d", code)
	}
	return said, sorted(out.all())
}

// sorted are the lines of what a server says, in an order that does not depend on who was served
// first, and without the name of its platform.
func sorted(text string) string {
	lines := strings.SplitAfter(anyPlatform(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func anyPlatform(text string) string {
	return strings.NewReplacer("wasip1/wasm", "PLATFORM", "linux/amd64", "PLATFORM", "linux/arm64", "PLATFORM").Replace(text)
}

// client talks to a greeter in a pod.
type client struct {
	t   *testing.T
	pod *pod
	log *output
}

// talk goes through what clients do, and returns what they got.
func (c client) talk() string {
	c.log.await(c.t, "listening")
	var said strings.Builder
	for _, part := range []struct {
		name string
		do   func() string
	}{
		{"early close", c.early}, {"plain", c.plain}, {"bodies", c.bodies}, {"keep-alive", c.keepAlive}, {"at once", c.atOnce}, {"wrong", c.wrong},
	} {
		fmt.Fprintf(&said, "%s:\n%s\n", part.name, part.do())
	}
	return anyPlatform(said.String())
}

func (c client) dial() *net.TCPConn {
	c.t.Helper()
	var conn net.Conn
	var err error
	c.pod.do(func() { conn, err = net.Dial("tcp", "127.0.0.1:8080") })
	if err != nil {
		c.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// raw sends bytes, then says that there are no more, and returns all that comes, without dates.
func (c client) raw(request string) string {
	c.t.Helper()
	conn := c.dial()
	defer conn.Close()
	go func() { // it may answer before it has read everything
		_, _ = io.WriteString(conn, request)
		_ = conn.CloseWrite()
	}()
	answer, err := io.ReadAll(conn)
	if err != nil && len(answer) == 0 {
		c.t.Errorf("request %.40q: %v", request, err)
	}
	var kept []string
	for line := range strings.Lines(string(answer)) {
		if !strings.HasPrefix(line, "Date: ") {
			kept = append(kept, strings.TrimRight(line, "\r\n"))
		}
	}
	return strings.Join(kept, "\n") + "\n"
}

// early has clients that go before they have said everything, or before they are answered.
func (c client) early() string {
	const torn = "POST /torn HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nten bytes."
	const gone = "GET /gone HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, request := range []string{"", "GET /ha", "GET /headers HTTP/1.1\r\nHost: a\r\n", torn, torn, gone, gone} {
		conn := c.dial()
		if _, err := io.WriteString(conn, request); err != nil {
			c.t.Error(err)
		}
		conn.Close()
	}
	for _, request := range []string{"", "GET /ha", "GET /headers HTTP/1.1\r\nHost: a\r\n"} {
		conn := c.dial()
		_, err := io.WriteString(conn, request)
		if err := errors.Join(err, conn.SetLinger(0), conn.Close()); err != nil { // a reset
			c.t.Error(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		log := c.log.soFar()
		served := []int{strings.Count(log, " /torn\n"), strings.Count(log, " /gone\n")}
		if served[0] == 2 && served[1] == 2 {
			return c.raw("GET /after HTTP/1.0\r\n\r\n")
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("of two requests each were served %v", served)
		}
	}
}

func (c client) plain() string {
	pipelined := strings.Repeat("GET /again HTTP/1.1\r\nHost: a\r\n\r\n", 3) + "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	return c.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") + c.raw("GET /old HTTP/1.0\r\n\r\n") +
		c.raw("HEAD /head HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") + c.raw("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") +
		c.raw("GET /"+strings.Repeat("long", 10000)+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") + c.raw(pipelined)
}

// bodies sends some that the server reads to their end and some that it does not, with their size
// and in chunks.
func (c client) bodies() string {
	var said strings.Builder
	for _, size := range []int{1, 100 << 10, 4 << 20} {
		body := strings.Repeat("x", size)
		said.WriteString(c.raw(fmt.Sprintf("POST /sized HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", size, body)))
		said.WriteString(c.raw(fmt.Sprintf("PUT /chunked HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", size, body)))
	}
	said.WriteString(c.raw("POST /expect HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"))
	return said.String()
}

// keepAlive asks many times over one connection.
func (c client) keepAlive() string {
	conn := c.dial()
	defer conn.Close()
	reader := bufio.NewReader(conn)
	var last string
	for i := range 100 {
		body := bytes.Repeat([]byte{'y'}, i<<10)
		fmt.Fprintf(conn, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			c.t.Fatalf("answer %d: %v", i, err)
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.Close {
			c.t.Fatalf("answer %d: %q, %v; is it the last: %v", i, text, err, answer.Close)
		}
		last = fmt.Sprintf("%d %s %s", i, answer.Status, text)
	}
	return last
}

// atOnce has many clients.
func (c client) atOnce() string {
	const clients, requests = 16, 8
	var dialed atomic.Int32
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DialContext: func(context.Context, string, string) (net.Conn, error) {
		dialed.Add(1)
		return c.dial(), nil
	}}
	defer transport.CloseIdleConnections()
	answers := make([]string, clients*requests)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for j := range requests {
				answer, err := (&http.Client{Transport: transport}).Post(fmt.Sprintf("http://a/%d/%d", i, j), "text/plain", strings.NewReader(strings.Repeat("z", j<<14)))
				if err != nil {
					c.t.Error(err)
					return
				}
				text, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil {
					c.t.Error(err)
				}
				answers[i*requests+j] = fmt.Sprintf("%d/%d %s %s", i, j, answer.Status, text)
			}
		})
	}
	group.Wait()
	if n := dialed.Load(); n < 1 || n > clients*requests {
		c.t.Errorf("%d connections", n)
	}
	return strings.Join(answers, "")
}

// wrong sends what is no request.
func (c client) wrong() string {
	return c.raw("nonsense\r\n\r\n") + c.raw("GET / HTTP/1.1\r\n\r\n") + c.raw("GET / HTTP/9.9\r\nHost: a\r\n\r\n") +
		c.raw("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: minus\r\n\r\n") + c.raw("\x16\x03\x01\x00\x05hello") +
		c.raw("GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("h", 2<<20)+"\r\n\r\n")
}
