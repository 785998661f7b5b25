package scenario

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/pty"
)

// transports are those of crictl: SPDY, and WebSocket in the newest protocols.
var transports = []string{"spdy", "websocket"}

// crictl is a running crictl that talks to the node.
func (m *machine) crictl(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), "../tools/bin/crictl", args...)
	cmd.Env = append(os.Environ(), "CRI_CONFIG_FILE=/dev/null",
		"CONTAINER_RUNTIME_ENDPOINT=unix://"+m.Socket, "IMAGE_SERVICE_ENDPOINT=unix://"+m.Socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// talk runs crictl to its end.
func (m *machine) talk(stdin string, args ...string) (stdout, stderr string, err error) {
	m.t.Helper()
	cmd := m.crictl(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	done := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	defer done.Stop()
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func TestExec(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range []string{"runc", "crun"} {
		c := m.run(handler).begin(sh("sleep 1000"))
		for _, transport := range transports {
			t.Run(handler+"/"+transport, func(t *testing.T) {
				m := m.in(t)
				run := func(stdin, script string) (string, string, error) {
					return m.talk(stdin, "exec", "-i", "-r", transport, c.id, "sh", "-c", script)
				}
				out, errs, err := run("from the client", "cat; echo; echo bad >&2")
				if err != nil || out != "from the client\n" || errs != "bad\n" {
					t.Errorf("%v: stdout %q, stderr %q", err, out, errs)
				}
				if _, errs, err := run("", "exit 42"); err == nil || !strings.Contains(errs, "exit code 42") {
					t.Errorf("exit 42: %v, %q", err, errs)
				}
				if out, errs, err = m.talk("", "exec", "-r", transport, c.id, "echo", "no input"); err != nil || out != "no input\n" {
					t.Errorf("without input: %v, %q, %q", err, out, errs)
				}
				big := strings.Repeat("0123456789abcdef", 1<<19)
				sum := fmt.Sprintf("%x", sha256.Sum256([]byte(big)))
				if out, errs, err = run(big, "sha256sum"); err != nil || !strings.HasPrefix(out, sum) {
					t.Errorf("8 MiB in: %v, %q, %q", err, out, errs)
				}
				if out, errs, err = run(big, "cat"); err != nil || out != big {
					t.Errorf("8 MiB in and out: %v, %d bytes, %q", err, len(out), errs)
				}
				// A grandchild that holds the output does not hold the session up for ever.
				begun := time.Now()
				if out, errs, err = run("", "sleep 600 & echo parent"); err != nil || out != "parent\n" || time.Since(begun) > 2*time.Minute {
					t.Errorf("with a grandchild: %v, %q, %q after %v", err, out, errs, time.Since(begun))
				}
				for command, code := range map[string]string{"/no/such/program": "127", "nothing-here": "127", "/etc": "126", "/etc/passwd": "126"} {
					_, errs, err = m.talk("", "exec", "-r", transport, c.id, command)
					if err == nil || !strings.Contains(errs, "exit code "+code) || !strings.Contains(errs, "exec failed: ") && !strings.Contains(errs, "executable") {
						t.Errorf("%s: %v, %q, want code %s and why", command, err, errs, code)
					}
				}
			})
		}
	}
}

// A guest's further process is another module of its image, or itself once more.
func TestExecInGuest(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	c := m.run("wasm").begin(containerConfig(world.Guest, "idle"))
	for _, transport := range transports {
		if out, errs, err := m.talk("", "exec", "-r", transport, c.id, "/guest.wasm", "cat", "/etc/greeting"); err != nil || out != "hello from the image\n" {
			t.Errorf("by %s: %v, %q, %q", transport, err, out, errs)
		}
		if _, errs, err := m.talk("", "exec", "-r", transport, c.id, "/guest.wasm", "exit", "9"); err == nil || !strings.Contains(errs, "exit code 9") {
			t.Errorf("by %s: exit 9: %v, %q", transport, err, errs)
		}
		if out, errs, err := m.talk("some input", "exec", "-i", "-r", transport, c.id, "/guest.wasm", "read"); err != nil || !strings.HasSuffix(out, "end of input\n") {
			t.Errorf("by %s: %v, %q, %q", transport, err, out, errs)
		}
	}
}

// terminal is a crictl under a terminal of its own.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	ended  chan error

	mu   sync.Mutex
	seen bytes.Buffer
}

func openTerminal(t *testing.T, cmd *exec.Cmd, width, height uint16) *terminal {
	t.Helper()
	master, slave := pty.Open(t)
	defer slave.Close()
	term := &terminal{t: t, master: master, cmd: cmd, ended: make(chan error, 1)}
	term.resize(width, height)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { term.ended <- cmd.Wait() }()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			term.mu.Lock()
			term.seen.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return term
}

func (term *terminal) resize(width, height uint16) {
	term.t.Helper()
	pty.Resize(term.t, term.master, width, height)
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

func (term *terminal) shows(want string) {
	term.t.Helper()
	if !node.Within(node.Patience, func() bool { return strings.Contains(term.text(), want) }) {
		term.t.Fatalf("the terminal does not show %q:\n%s", want, term.text())
	}
}

func (term *terminal) types(text string) {
	term.t.Helper()
	if _, err := io.WriteString(term.master, text); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) ends() error {
	term.t.Helper()
	select {
	case err := <-term.ended:
		return err
	case <-time.After(node.Patience):
		term.cmd.Process.Kill()
		term.t.Fatalf("the session does not end:\n%s", term.text())
		return nil
	}
}

func TestExecWithTerminal(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range []string{"runc", "crun"} {
		c := m.run(handler).begin(sh("sleep 1000"))
		for _, transport := range transports {
			t.Run(handler+"/"+transport, func(t *testing.T) {
				m := m.in(t)
				term := openTerminal(t, m.crictl("exec", "-i", "-t", "-r", transport, c.id, "sh"), 111, 33)
				term.types("test -t 0 && test -t 2 && echo a $TERM terminal\n")
				term.shows("a xterm terminal")
				term.types("until stty size | grep -q '33 111'; do usleep 10000; done; echo sized\n")
				term.shows("\nsized")
				term.resize(77, 22)
				if err := term.cmd.Process.Signal(syscall.SIGWINCH); err != nil {
					t.Fatal(err)
				}
				term.types("until stty size | grep -q '22 77'; do usleep 10000; done; echo sized again\n")
				term.shows("\nsized again")
				term.types("exit 5\n")
				if err := term.ends(); err == nil {
					t.Error("exit 5 is no error")
				}
				term.shows("exit code 5")
				// A shell whose client is gone is told so.
				term = openTerminal(t, m.crictl("exec", "-i", "-t", "-r", transport, c.id, "sh", "-c", "trap 'echo hung up >/proc/1/fd/1; exit' HUP; echo ready; while :; do usleep 10000; done"), 80, 24)
				term.shows("ready")
				term.cmd.Process.Kill()
				term.ends()
				c.says("hung up")
				if err := os.Truncate(c.log, 0); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// Whoever attaches takes part: the log goes on, and so does the container when they leave.
func TestAttach(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range []string{"runc", "crun"} {
		for _, transport := range transports {
			t.Run(handler+"/"+transport, func(t *testing.T) {
				m := m.in(t)
				p := m.run(handler)
				config := sh("echo ready; while read line; do echo got $line; echo bad $line >&2; done; echo end of input")
				config.Stdin = true
				c := p.begin(config)
				c.says("ready")
				listener := m.crictl("attach", "-r", transport, c.id)
				var heard, heardErr node.Buffer
				listener.Stdout, listener.Stderr = &heard, &heardErr
				if err := listener.Start(); err != nil {
					t.Fatal(err)
				}
				m.attached()
				for _, word := range []string{"one", "two"} {
					speaker := m.crictl("attach", "-i", "-r", transport, c.id)
					in := must(speaker.StdinPipe())
					var said node.Buffer
					speaker.Stdout = &said
					if err := speaker.Start(); err != nil {
						t.Fatal(err)
					}
					fmt.Fprintln(in, word)
					if !node.Within(node.Patience, func() bool { return strings.Contains(said.String(), "got "+word+"\n") }) {
						t.Fatalf("no answer: %q\n%s", said.String(), m.DaemonLog())
					}
					in.Close()
					if err := speaker.Wait(); err != nil {
						t.Errorf("detach: %v", err)
					}
				}
				if !node.Within(node.Patience, func() bool {
					return strings.Contains(heard.String(), "got two\n") && strings.Contains(heardErr.String(), "bad two\n")
				}) {
					t.Errorf("the listener heard %q, %q", heard.String(), heardErr.String())
				}
				c.says("got two")
				c.stop(0)
				if err := listener.Wait(); err != nil {
					t.Errorf("the listener ended with %v", err)
				}
			})
			t.Run(handler+"/"+transport+"/once", func(t *testing.T) {
				m := m.in(t)
				config := sh("cat; echo end of input; exit 3")
				config.Stdin, config.StdinOnce = true, true
				c := m.run(handler).begin(config)
				out, errs, err := m.talk("all there is\n", "attach", "-i", "-r", transport, c.id)
				if err != nil || out != "all there is\nend of input\n" {
					t.Errorf("%v: %q, %q", err, out, errs)
				}
				c.expectEnd(3, "Error")
				if c.text() != "all there is\nend of input\n" {
					t.Errorf("the log says %q", c.text())
				}
			})
			t.Run(handler+"/"+transport+"/terminal", func(t *testing.T) {
				m := m.in(t)
				config := sh("echo ready; exec sh")
				config.Stdin, config.StdinOnce, config.Tty = true, true, true
				c := m.run(handler).begin(config)
				c.says("ready")
				term := openTerminal(t, m.crictl("attach", "-i", "-t", "-r", transport, c.id), 99, 44)
				term.types("until stty size | grep -q '44 99'; do usleep 10000; done; echo sized\n")
				term.shows("\nsized")
				term.types("exit 6\n")
				term.ends()
				c.expectEnd(6, "Error")
			})
		}
	}
	for _, transport := range transports {
		config := containerConfig(world.Guest, "read")
		config.Stdin, config.StdinOnce = true, true
		c := m.run("wasm").begin(config)
		c.says("reading")
		if out, errs, err := m.talk("some\n", "attach", "-i", "-r", transport, c.id); err != nil || out != "guest: end of input\n" {
			t.Errorf("by %s to a guest: %v, %q, %q", transport, err, out, errs)
		}
		c.expectEnd(0, "Completed")
	}
}

// attached waits until a client is attached to an output: the shim has the FIFO open that the
// daemon has for it.
func (m *machine) attached() {
	m.t.Helper()
	if !node.Within(node.Patience, func() bool {
		fifos, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.DaemonPID()))
		if err != nil {
			m.t.Fatal(err)
		}
		for _, fd := range fifos {
			if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", m.DaemonPID(), fd.Name())); err == nil && strings.HasSuffix(to, "-stdout (deleted)") {
				return true
			}
		}
		return false
	}) {
		m.t.Fatal("nobody is attached")
	}
}

// A client that does not read holds up neither the container nor its log, and learns that it missed
// something.
func TestAttachSlowly(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	c := m.run("runc").begin(sh("until test -e /go; do usleep 10000; done; head -c 60000000 /dev/zero | tr '\\0' x; echo; echo all said; sleep 1000"))
	slow := m.crictl("attach", c.id)
	var said, problem node.Buffer
	slow.Stdout, slow.Stderr = &said, &problem
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	m.attached()
	if err := slow.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, errs, err := m.talk("", "exec", c.id, "touch", "/go"); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	c.says("all said")
	if err := slow.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := slow.Wait(); err == nil || !strings.Contains(problem.String(), "faster than it was taken") {
		t.Errorf("%v: %d bytes, %q", err, len(said.String()), problem.String())
	}
}

// A container without a log can be attached to, and after a restart of the server as before.
func TestAttachAfterRestart(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc", func(config *runtime.PodSandboxConfig) { config.LogDirectory = "" })
	config := sh("while read line; do echo got $line; done")
	config.Stdin, config.StdinOnce, config.LogPath = true, true, ""
	c, err := p.tryCreate(config)
	if err != nil {
		t.Fatal(err)
	}
	c.start()
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := m.talk("after\n", "attach", "-i", c.id); err != nil || out != "got after\n" {
		t.Errorf("%v: %q, %q", err, out, errs)
	}
	c.expectEnd(0, "Completed")
}

// A daemon that dies takes its sessions along, and a command that goes on writing is not held up by
// that.
func TestExecOutlivesDaemon(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	c := m.run("runc").begin(sh("until test -e /done; do usleep 10000; done; echo done"))
	session := m.crictl("exec", c.id, "sh", "-c", "echo begun; sleep 1; head -c 1000000 /dev/zero; touch /done")
	var said node.Buffer
	session.Stdout = &said
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	if !node.Within(node.Patience, func() bool { return strings.Contains(said.String(), "begun") }) {
		t.Fatal("the command did not begin")
	}
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	session.Wait()
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.expectEnd(0, "Completed")
}

// A command whose terminal has gone with the server is told so by the next one.
func TestTerminalOfDeadDaemon(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	c := m.run("runc").begin(sh("sleep 1000"))
	term := openTerminal(t, m.crictl("exec", "-i", "-t", c.id, "sh", "-c", "trap 'echo hung up >/proc/1/fd/1; exit' HUP; echo ready; while :; do usleep 10000; done"), 80, 24)
	term.shows("ready")
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	term.ends()
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.says("hung up")
}

// Commands whose callers give up while they are prepared or started leave nothing open in the shim.
func TestExecGivenUp(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	c := p.begin(sh("sleep 1000"))
	open := func() int { return len(must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.shim())))) }
	before := open()
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for n := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(4*n+worker)*50*time.Microsecond)
				if _, err := m.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"true"}}); err != nil && grpcstatus.Code(err) != codes.DeadlineExceeded {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	group.Wait()
	if !node.Within(node.Patience, func() bool { return open() == before }) {
		t.Errorf("the shim had %d files open before, and has %d", before, open())
	}
}

func TestPortForward(t *testing.T) {
	m := start(t)
	m.pull(world.Greeter)
	for i, handler := range everyHandler {
		own := m.run(handler, withPort(8080, 0))
		own.begin(containerConfig(world.Greeter)).says("listening")
		hostPort := 18180 + i
		host := m.run(handler, hostNetwork, withPort(int32(hostPort), int32(hostPort)))
		config := containerConfig(world.Greeter)
		config.Envs = []*runtime.KeyValue{{Key: "PORT", Value: []byte(fmt.Sprint(hostPort))}}
		config.Linux.SecurityContext = &runtime.LinuxContainerSecurityContext{NamespaceOptions: host.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}
		host.begin(config).says("listening")
		for _, transport := range transports {
			for _, to := range []struct {
				pod  *pod
				port int
			}{{own, 8080}, {host, hostPort}} {
				t.Run(fmt.Sprintf("%s/%s/%d", handler, transport, to.port), func(t *testing.T) {
					m := m.in(t)
					at := m.forward(t, to.pod.id, transport, to.port)
					var all sync.WaitGroup
					for range 10 {
						all.Go(func() {
							answer, err := http.Get("http://" + at)
							if err != nil {
								t.Error(err)
								return
							}
							defer answer.Body.Close()
							if body, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(body), platformOf(handler)) {
								t.Errorf("%v: %q", err, body)
							}
						})
					}
					all.Wait()
				})
			}
		}
	}
}

// forward runs crictl port-forward until the test ends and returns its local address.
func (m *machine) forward(t *testing.T, podID, transport string, port int) string {
	t.Helper()
	cmd := m.crictl("port-forward", "-r", transport, podID, fmt.Sprintf(":%d", port))
	var out node.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	const before = "Forwarding from "
	if !node.Within(node.Patience, func() bool { return strings.Contains(out.String(), before) }) {
		t.Fatalf("no forwarding: %s\n%s", out.String(), m.DaemonLog())
	}
	_, rest, _ := strings.Cut(out.String(), before)
	at, _, _ := strings.Cut(rest, " ")
	return at
}

// listens finds a listener at port 7000 in the kernel's table of sockets.
var listens = regexp.MustCompile(`(?m)^ *\d+: [0-9A-F]+:1B58 [0-9A-F]+:0000 0A `)

// The end of one side of a forwarded connection is not the end of the other.
func TestPortForwardHalfClose(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	c := p.begin(sh("nc -l -p 7000 -e sh -c 'cat >/got; sleep 2; wc -c </got; echo late'"))
	pid := taskPID(t, c)
	if !node.Within(node.Patience, func() bool { // it takes one connection only
		v4, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
		v6, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp6", pid))
		return listens.Match(v4) || listens.Match(v6)
	}) {
		t.Fatal("nobody listens")
	}
	at := m.forward(t, p.id, "spdy", 7000)
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, strings.Repeat("x", 100000))
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "100000\nlate\n" {
		t.Errorf("%v: %q", err, answer)
	}
}

func TestSessionRefusals(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	c := p.begin(sh("sleep 1000"))
	created := p.create(sh("true"))
	ctx := t.Context()
	cmd := []string{"true"}
	for name, test := range map[string]struct {
		err  error
		want codes.Code
	}{
		"exec, unknown":        {second(m.Exec(ctx, &runtime.ExecRequest{ContainerId: "unknown", Cmd: cmd, Stdout: true})), codes.NotFound},
		"exec, not running":    {second(m.Exec(ctx, &runtime.ExecRequest{ContainerId: created.id, Cmd: cmd, Stdout: true})), codes.FailedPrecondition},
		"exec, tty and stderr": {second(m.Exec(ctx, &runtime.ExecRequest{ContainerId: c.id, Cmd: cmd, Stdout: true, Stderr: true, Tty: true})), codes.InvalidArgument},
		"exec, no stream":      {second(m.Exec(ctx, &runtime.ExecRequest{ContainerId: c.id, Cmd: cmd})), codes.InvalidArgument},
		"exec, no command":     {second(m.Exec(ctx, &runtime.ExecRequest{ContainerId: c.id, Stdout: true})), codes.InvalidArgument},
		"attach, unknown":      {second(m.Attach(ctx, &runtime.AttachRequest{ContainerId: "unknown", Stdout: true})), codes.NotFound},
		"attach, not running":  {second(m.Attach(ctx, &runtime.AttachRequest{ContainerId: created.id, Stdout: true})), codes.FailedPrecondition},
		"attach, tty, stderr":  {second(m.Attach(ctx, &runtime.AttachRequest{ContainerId: c.id, Stderr: true, Tty: true})), codes.InvalidArgument},
		"attach, no stream":    {second(m.Attach(ctx, &runtime.AttachRequest{ContainerId: c.id})), codes.InvalidArgument},
		"forward, unknown":     {second(m.PortForward(ctx, &runtime.PortForwardRequest{PodSandboxId: "unknown"})), codes.NotFound},
		"forward, no port":     {second(m.PortForward(ctx, &runtime.PortForwardRequest{PodSandboxId: p.id, Port: []int32{70000}})), codes.InvalidArgument},
	} {
		if got := grpcstatus.Code(test.err); got != test.want {
			t.Errorf("%s: %v, want %v", name, test.err, test.want)
		}
	}
	answer, err := m.Exec(ctx, &runtime.ExecRequest{ContainerId: c.id[:20], Cmd: cmd, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(answer.GetUrl(), "http://127.0.0.1:") {
		t.Errorf("address %q", answer.GetUrl())
	}
	for _, want := range []int{http.StatusBadRequest, http.StatusNotFound} { // a token is good for one request, of whatever kind
		resp, err := http.Get(answer.GetUrl())
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s, want %d", resp.Status, want)
		}
	}
	p.stop()
	if _, err := m.PortForward(ctx, &runtime.PortForwardRequest{PodSandboxId: p.id}); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("forward to a stopped pod: %v", err)
	}
}

func second[A any](_ A, err error) error { return err }

func TestContainerEvents(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Batch)
	early := m.run("runc") // nobody listens yet: its events are kept
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listen := func() runtime.RuntimeService_GetContainerEventsClient {
		stream, err := m.GetContainerEvents(ctx, &runtime.GetEventsRequest{})
		if err == nil {
			_, err = stream.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	first, second := listen(), listen()
	next := func(stream runtime.RuntimeService_GetContainerEventsClient, pod, id string, kind runtime.ContainerEventType, ready bool, states ...runtime.ContainerState) {
		t.Helper()
		e, err := stream.Recv()
		if err != nil {
			t.Fatalf("%v, want %s of %.8s", err, kind, id)
		}
		var got []runtime.ContainerState
		for _, s := range e.GetContainersStatuses() {
			got = append(got, s.GetState())
		}
		want := runtime.PodSandboxState_SANDBOX_NOTREADY
		if ready {
			want = runtime.PodSandboxState_SANDBOX_READY
		}
		if e.GetContainerId() != id || e.GetContainerEventType() != kind || e.GetPodSandboxStatus().GetId() != pod ||
			e.GetPodSandboxStatus().GetState() != want || fmt.Sprint(got) != fmt.Sprint(states) || e.GetCreatedAt() == 0 {
			t.Fatalf("event %v\nwant %s of %s with the pod's ready=%v and containers %v", e, kind, id, ready, states)
		}
	}
	const (
		created = runtime.ContainerEventType_CONTAINER_CREATED_EVENT
		started = runtime.ContainerEventType_CONTAINER_STARTED_EVENT
		stopped = runtime.ContainerEventType_CONTAINER_STOPPED_EVENT
		deleted = runtime.ContainerEventType_CONTAINER_DELETED_EVENT

		isCreated = runtime.ContainerState_CONTAINER_CREATED
		isRunning = runtime.ContainerState_CONTAINER_RUNNING
		isExited  = runtime.ContainerState_CONTAINER_EXITED
	)
	next(first, early.id, early.id, created, true)
	next(first, early.id, early.id, started, true)
	for _, handler := range everyHandler {
		p := m.run(handler)
		c := p.begin(containerConfig(world.Batch))
		c.expectEnd(0, "Completed")
		p.remove()
		for _, stream := range []runtime.RuntimeService_GetContainerEventsClient{first, second} {
			next(stream, p.id, p.id, created, true)
			next(stream, p.id, p.id, started, true)
			next(stream, p.id, c.id, created, true, isCreated)
			next(stream, p.id, c.id, started, true, isRunning)
			next(stream, p.id, c.id, stopped, true, isExited)
			next(stream, p.id, p.id, stopped, false, isExited)
			next(stream, p.id, c.id, deleted, false)
			next(stream, p.id, p.id, deleted, false)
		}
	}
	status := early.status()
	if status.GetTimestamp() == 0 || len(status.GetContainersStatuses()) != 0 {
		t.Errorf("status %v", status)
	}
	if err := m.SignalDaemon(syscall.SIGTERM); err != nil { // a listener does not hold up the end
		t.Fatal(err)
	}
	if _, err := first.Recv(); grpcstatus.Code(err) != codes.Unavailable && !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
}
