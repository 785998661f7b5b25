package scenario

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
	"github.com/sunaba-project/sunaba/tests/pty"
)

// run is `sunaba run` with the node's server, or with one of its own.
type streamRun struct {
	name   string
	server []string // flags that say which server
	what   func(t *testing.T, mode ...string) []string
}

// streamRuns are a Linux container of a manifest and a module, each with both kinds of servers.
func (m *machine) streamRuns(t *testing.T) []streamRun {
	t.Helper()
	module, err := oci.BuildC(t.Context(), "testdata/streams.c")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config, file := filepath.Join(dir, "config.toml"), filepath.Join(dir, "streams.wasm")
	text := fmt.Sprintf("[network]\nconf_dir = %q\n[handlers.runc]\ntype = \"oci\"\nbinary = \"runc\"\ndefault = true\n[handlers.wasm]\ntype = \"wasm\"\n", filepath.Join(m.Options.Dir, "cni"))
	if err := errors.Join(os.WriteFile(config, []byte(text), 0o644), os.WriteFile(file, module, 0o644)); err != nil {
		t.Fatal(err)
	}
	guest := func(_ *testing.T, mode ...string) []string { return append([]string{file, "--"}, mode...) }
	linux := func(t *testing.T, mode ...string) []string {
		return []string{streamPod(t, map[string]string{"cat": "cat; exit ${1:-0}", "say": "echo said; echo aside >&2; exit 3",
			"prompt": `printf "> "; while read -r line; do [ "$line" = quit ] && exit 6; printf "got %s\n> " "$line"; done`}[mode[0]], mode[1:]...)}
	}
	here, own := []string{"--socket", m.Socket}, []string{"--socket", filepath.Join(dir, "none.sock"), "--config", config}
	return []streamRun{{"linux", here, linux}, {"guest", here, guest}, {"linux, own server", own, linux}, {"guest, own server", own, guest}}
}

// streamPod is a manifest of a pod whose container runs a script.
func streamPod(t *testing.T, script string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pod.yaml")
	var quoted []string
	for _, a := range args {
		quoted = append(quoted, strconv.Quote(a))
	}
	text := fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: streams}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 3, containers: ["+
		"{name: c, image: %q, command: [sh, -c, %q, sh, %s]}]}}", world.Busybox, strings.ReplaceAll(script, "$", "$$"), strings.Join(quoted, ","))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func (r streamRun) command(t *testing.T, flags string, mode ...string) *exec.Cmd {
	args := append(append([]string{"run"}, r.server...), flags)
	return exec.CommandContext(t.Context(), filepath.Join(world.Bin, "sunaba"), append(args, r.what(t, mode...)...)...)
}

// run runs it to its end.
func (r streamRun) run(t *testing.T, stdin io.Reader, flags string, mode ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := r.command(t, flags, mode...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	cmd.WaitDelay = time.Second // a command that ends need not have read its input
	done := time.AfterFunc(node.Patience, func() { cmd.Process.Kill() })
	defer done.Stop()
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// What goes through a `sunaba run -i` is not changed, and nothing is lost at its start or end.
func TestRunPipes(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	data := make([]byte, 3<<20)
	rand.Read(data)
	copy(data[1<<20:], strings.Repeat("a line\r\n\r\r\n", 1<<15))
	for _, r := range m.streamRuns(t) {
		t.Run(r.name, func(t *testing.T) {
			if code, out, errs := r.run(t, bytes.NewReader(data), "-i", "cat", "4"); code != 4 || out != string(data) {
				t.Errorf("code %d, %d bytes of %d, the same: %v\n%s", code, len(out), len(data), out == string(data), errs)
			}
			if code, out, errs := r.run(t, strings.NewReader("no line"), "-i", "cat"); code != 0 || out != "no line" {
				t.Errorf("code %d, %q\n%s", code, out, errs)
			}
			// It ends without reading, and at once.
			code, out, errs := r.run(t, bytes.NewReader(data), "-i", "say")
			if code != 3 || out != "said\n" || !strings.Contains(errs, "aside\n") {
				t.Errorf("code %d, %q\n%s", code, out, errs)
			}
			if code, out, errs := r.run(t, nil, "-t", "say"); code != 3 || !strings.Contains(out, "said\r\n") && !strings.Contains(out, "said\n") {
				t.Errorf("-t: code %d, %q\n%s", code, out, errs)
			}
			code, out, errs = r.run(t, strings.NewReader("one\nquit\nthree\n"), "-it", "prompt")
			if code != 6 || out != "> got one\n> " || !strings.Contains(errs, "Unable to use a TTY") {
				t.Errorf("-it without a terminal: code %d, %q\n%s", code, out, errs)
			}
		})
	}
}

// Output that is read late is not lost, however much it is: also if the container has ended long
// before that.
func TestRunSlowReader(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, r := range m.streamRuns(t)[:2] {
		for name, pause := range map[string]time.Duration{"slow": 0, "late": 6 * time.Second} {
			t.Run(r.name+", "+name, func(t *testing.T) {
				cmd := r.command(t, "-i", "cat")
				cmd.Stdin = io.LimitReader(zeros{}, 64<<20)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				total := 0
				for buf := make([]byte, 1<<20); ; time.Sleep(50 * time.Millisecond) {
					n, err := io.ReadFull(out, buf)
					total += n
					if err != nil {
						break
					}
					if pause > 0 && m.in(t).allEnded() {
						time.Sleep(pause)
						pause = 0
					}
				}
				if err := cmd.Wait(); err != nil || total != 64<<20 || pause > 0 {
					t.Errorf("%v, %d bytes, %s", err, total, pause)
				}
			})
		}
	}
}

// A `sunaba run -i` whose container has ended, and whose output nobody reads, ends on a signal.
func TestRunNoReader(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, r := range m.streamRuns(t)[:2] {
		t.Run(r.name, func(t *testing.T) {
			m := m.in(t)
			cmd := r.command(t, "-i", "cat")
			cmd.Stdin = io.LimitReader(zeros{}, 1<<20)
			if _, err := cmd.StdoutPipe(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if !node.Within(node.Patience, m.allEnded) {
				t.Error("the container does not end")
			}
			time.Sleep(time.Second)
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatalf("it did not wait for its reader: %v", err)
			}
			kill := time.AfterFunc(node.Patience, func() { cmd.Process.Kill() })
			defer kill.Stop()
			if cmd.Wait(); cmd.ProcessState.ExitCode() < 0 {
				t.Error(cmd.ProcessState)
			}
			m.noPods()
		})
	}
}

// allEnded says whether all containers of the machine have ended.
func (m *machine) allEnded() bool {
	m.t.Helper()
	list, err := m.ListContainers(m.t.Context(), &runtime.ListContainersRequest{})
	if err != nil {
		m.t.Fatal(err)
	}
	return len(list.Containers) > 0 && !slices.ContainsFunc(list.Containers, func(c *runtime.Container) bool { return c.State != runtime.ContainerState_CONTAINER_EXITED })
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// code is the exit code of what runs under the terminal.
func (term *terminal) code() int {
	term.t.Helper()
	term.ends()
	return term.cmd.ProcessState.ExitCode()
}

// A `sunaba run -it` is its program's: keys, size and exit code. It restores the terminal's mode.
func TestRunTerminal(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, r := range m.streamRuns(t) {
		t.Run(r.name, func(t *testing.T) {
			held := openTerminal(t, exec.CommandContext(t.Context(), "true"), 99, 44)
			before := pty.Mode(t, held.master)
			held.ends()
			term := openTerminal(t, r.command(t, "-it", "prompt"), 99, 44)
			term.shows("> ")
			if pty.Mode(t, term.master).Lflag&(unix.ISIG|unix.ICANON|unix.ECHO) != 0 {
				t.Error("keys are not passed on as they are typed")
			}
			term.types("hello\r")
			term.shows("got hello\r\n")
			term.types("quit\r")
			if code := term.code(); code != 6 {
				t.Errorf("exit code %d:\n%s", code, term.text())
			}
			if pty.Mode(t, term.master) != before {
				t.Errorf("the terminal's mode is %+v, was %+v", pty.Mode(t, term.master), before)
			}
		})
	}
	here := streamRun{server: []string{"--socket", m.Socket}, what: func(t *testing.T, script ...string) []string { return []string{streamPod(t, script[0])} }}
	t.Run("keys and size", func(t *testing.T) {
		term := openTerminal(t, here.command(t, "-it", `trap "echo interrupted" INT; until stty size | grep -q "44 99"; do usleep 10000; done; echo sized;
			until stty size | grep -q "22 77"; do usleep 10000; done; echo sized again; while :; do read -r line && exit 7; done`), 99, 44)
		term.shows("sized\r\n")
		term.resize(77, 22)
		if err := term.cmd.Process.Signal(syscall.SIGWINCH); err != nil {
			t.Fatal(err)
		}
		term.shows("sized again")
		term.types("\x03")
		term.shows("interrupted")
		term.types("\r")
		if code := term.code(); code != 7 {
			t.Errorf("exit code %d:\n%s", code, term.text())
		}
	})
	for _, handler := range []string{"runc", "crun"} {
		shell := streamRun{server: []string{"--socket", m.Socket, "--handler", handler}, what: here.what}
		t.Run("job control, "+handler, func(t *testing.T) {
			term := openTerminal(t, shell.command(t, "-it", "exec sh -i"), 99, 44)
			term.shows("# ")
			term.types(`sh -c 'trap "echo aga""in" CONT; echo rea""dy; while :; do usleep 10000; done'` + "\r")
			term.shows("ready")
			term.types("\x1a")
			term.shows("Stopped")
			term.types("fg\r")
			term.shows("again")
			term.types("\x03")
			term.types("echo it ended with $?\r")
			term.shows("it ended with 130\r\n")
			term.types("exit 4\r")
			if code := term.code(); code != 4 {
				t.Errorf("exit code %d:\n%s", code, term.text())
			}
		})
	}
	// A guest knows no signals: keys do what they do to a program that handles none.
	guest := m.streamRuns(t)[1]
	for _, c := range []struct {
		mode, shows, key string
		code             int
	}{{"prompt", "> ", "\x03", 130}, {"spin", "spinning", "\x03", 130}, {"spin", "spinning", "\x1c", 131}} {
		t.Run(fmt.Sprintf("guest, %s, key %q", c.mode, c.key), func(t *testing.T) {
			term := openTerminal(t, guest.command(t, "-it", c.mode), 99, 44)
			term.shows(c.shows)
			term.types("\x1a") // Ctrl-Z does nothing
			term.types(c.key)
			if code := term.code(); code != c.code || strings.Contains(term.text(), "goroutine") {
				t.Errorf("exit code %d:\n%s", code, term.text())
			}
		})
	}
	for name, signal := range map[string]syscall.Signal{"terminated": syscall.SIGTERM, "hung up": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			term := openTerminal(t, here.command(t, "-it", `trap "echo asked; exit 9" TERM; echo ready; while :; do usleep 10000; done`), 99, 44)
			before := pty.Mode(t, term.master)
			term.shows("ready")
			if err := term.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			code := term.code()
			if code != 9 || !strings.Contains(term.text(), "asked\r\n") || pty.Mode(t, term.master) != before {
				t.Errorf("exit code %d, the terminal's mode is as before: %v\n%s", code, pty.Mode(t, term.master) == before, term.text())
			}
		})
	}
}

// A `sunaba run` whose server is killed ends and says so, restores the terminal, and removes its
// pod once there is a server again.
func TestRunServerKilled(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	runs := m.streamRuns(t)
	for _, c := range []struct {
		flags string
		run   streamRun
	}{{"-it", runs[0]}, {"-t", runs[0]}, {"-i", runs[1]}} {
		t.Run(c.run.name+" "+c.flags, func(t *testing.T) {
			m := m.in(t)
			held := openTerminal(t, exec.CommandContext(t.Context(), "true"), 99, 44)
			before := pty.Mode(t, held.master)
			held.ends()
			term := openTerminal(t, c.run.command(t, c.flags, "prompt"), 99, 44)
			term.shows("> ")
			if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			term.shows("\" is lost: ")
			if !node.Within(node.Patience, func() bool { return pty.Mode(t, term.master) == before }) {
				t.Error("the terminal's mode is not as before")
			}
			if err := m.StartDaemon(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			if code := term.code(); code != 125 {
				t.Errorf("exit code %d:\n%s", code, term.text())
			}
			m.noPods()
		})
	}
}

// A `sunaba run` whose container's shim dies ends and says so: where a successor runs the container
// on, bytes that were on their way are lost; without one the container's end is told.
func TestRunShimKilled(t *testing.T) {
	for _, scope := range []struct {
		name, says string
		code       int
		start      func(t *testing.T) *machine
	}{
		{"shared shim", "is lost: ", 125, func(t *testing.T) *machine { return start(t) }},
		{"own shim", "ended with code 255", 255, startOwn},
	} {
		t.Run(scope.name, func(t *testing.T) {
			m := scope.start(t)
			m.pull(world.Busybox)
			for _, r := range m.streamRuns(t)[:2] {
				for _, flags := range []string{"-i", "-t", "-it"} {
					t.Run(r.name+" "+flags, func(t *testing.T) {
						term := openTerminal(t, r.command(t, flags, "prompt"), 99, 44)
						term.shows("> ")
						before := pty.Mode(t, term.master)
						p := m.in(t).runningPod()
						p.kill9(p.shim())
						if code, text := term.code(), term.text(); code != scope.code || !strings.Contains(text, scope.says) {
							t.Errorf("exit code %d, want %d with %q:\n%s", code, scope.code, scope.says, text)
						}
						if flags == "-it" && pty.Mode(t, term.master) == before {
							t.Error("the terminal's mode was not restored")
						}
						p.noPods()
					})
				}
			}
		})
	}
}

// runningPod is the only pod of the machine.
func (m *machine) runningPod() *pod {
	m.t.Helper()
	list, err := m.ListPodSandbox(m.t.Context(), &runtime.ListPodSandboxRequest{})
	if err != nil || len(list.Items) != 1 {
		m.t.Fatal(list, err)
	}
	return &pod{machine: m, id: list.Items[0].Id, handler: list.Items[0].RuntimeHandler}
}

func (m *machine) noPods() {
	m.t.Helper()
	list, err := m.ListPodSandbox(m.t.Context(), &runtime.ListPodSandboxRequest{})
	if err != nil || len(list.Items) > 0 {
		m.t.Errorf("pods are left: %v, %v", list, err)
	}
}
