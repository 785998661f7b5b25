package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
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

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
	"github.com/sunaba-project/sunaba/tests/pty"
)

// comesWithin is how long what must come may take.
const comesWithin = time.Minute

func TestWasmRun(t *testing.T) {
	b := newWasmBench(t)
	b.checkNothingLeft()
	hello, probe := b.file("hello.wasm", cGuest(t, "hello")), b.file("probe.wasm", cGuest(t, "probe"))
	shared := filepath.Join(b.dir, "shared")
	if err := os.MkdirAll(filepath.Join(shared, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.file("shared/file", []byte("content\n"))
	if err := os.Chown(shared, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	runs := b.file("runs.wasm", oci.Component())
	t.Setenv("SUNABA_TEST_VALUE", "inherited")
	for _, c := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // what they contain
	}{
		{"arguments", []string{hello, "a", "--env", "-x"}, 0, "hello a --env -x\n", ""},
		{"after two dashes", []string{"--", hello, "--", "a"}, 0, "hello -- a\n", ""},
		{"exit code", []string{"--env", "CODE=3", hello}, 3, "hello\n", ""},
		{"large exit code", []string{"--env", "CODE=259", hello}, 3, "hello\n", "exit code is 259"},
		{"variables", []string{"--env", "A=1,2", "--env", "SUNABA_TEST_VALUE", "--env", "SUNABA_TEST_UNSET", probe, "env:A", "env:SUNABA_TEST_VALUE", "env:PATH"},
			0, "env:A=1,2\nenv:SUNABA_TEST_VALUE=inherited\nenv:PATH=\n", ""},
		{"trap", []string{probe, "trap"}, 134, "", "wasm error: unreachable\nwasm stack trace:\n\t."},
		{"empty root", []string{probe, "list:/", "read:/etc/hostname", "write:/f"}, 0,
			"list:/=0\nread:/etc/hostname=No such file or directory\nwrite:/f=Read-only file system\n", ""},
		{"directory", []string{"--dir", shared + ":/data/in", "--user", "1234", probe, "read:/data/in/file", "list:/data/in", "write:/data/in/new"}, 0,
			"read:/data/in/file=content\nlist:/data/in=2\nwrite:/data/in/new=ok\n", ""},
		{"read-only directory", []string{"--dir", shared + ":/d:ro", "--user", "1234:5", probe, "read:/d/file", "write:/d/other"}, 0,
			"read:/d/file=content\nwrite:/d/other=Read-only file system\n", ""},
		{"nobody", []string{"--dir", shared + ":/d", "--user", "0", probe, "write:/d/other"}, 0, "write:/d/other=Permission denied\n", ""},
		{"same path", []string{"--dir", shared + ":ro", probe, "read:" + shared + "/file"}, 0, "=content\n", ""},
		{"one file", []string{"--dir", shared + "/file:/x/name.txt:ro", probe, "read:/x/name.txt", "list:/x"}, 0, "=content\nlist:/x=1\n", ""},
		{"memory", []string{"--memory", "64Mi", probe, "grow"}, 0, "grow=63", ""},
		{"too little memory", []string{"--memory", "1Mi", probe, "grow"}, 128, "", "memory"},
		{"missing import", []string{b.file("lacking.wasm", cGuest(t, "lacking"))}, 128, "", `import "env"."launch_missiles" is missing`},
		{"component that runs", []string{runs, "say", "two", "words"}, 0, "two words\n", ""},
		{"component's exit code", []string{runs, "exit", "7"}, 7, "", ""},
		{"component's trap", []string{runs, "trap"}, 134, "", "wasm error: unreachable"},
		{"component's variable", []string{"--env", "A=1,2", runs, "env", "A"}, 0, "1,2\n", ""},
		{"component's directory", []string{"--dir", shared + ":/d:ro", "--user", "1234:5", runs, "read", "/d/file"}, 0, "content\n", ""},
		{"component's read-only directory", []string{"--dir", shared + ":/d:ro", "--user", "1234:5", runs, "write", "/d/other"}, 1, "read-only\n", ""},
		{"component's memory", []string{"--memory", "32Mi", runs, "fill", "64"}, 3, "then no more\n", ""},
		{"component", []string{b.file("component.wasm", []byte("\x00asm\x0d\x00\x01\x00"))}, 128, "", "component"},
		{"no file", []string{"nowhere.wasm"}, 1, "", "neither a file nor an image"},
		{"nothing", []string{}, 1, "", "want a module"},
		{"bad memory", []string{"--memory", "lots", hello}, 1, "", `memory "lots"`},
		{"too small memory", []string{"--memory", "1", hello}, 1, "", "--memory 1 is 1 B, and no guest starts with less than 1.0 MiB: give a unit, such as 64Mi"},
		{"bad directory", []string{"--dir", ":/x", hello}, 1, "", "HOST:GUEST"},
		{"no directory", []string{"--dir", "/nowhere:/x", hello}, 1, "", "no such file"},
		{"whole root", []string{"--dir", shared + ":/", hello}, 1, "", "below the guest's root"},
		{"bad port", []string{"--listen", "0", hello}, 1, "", "not a port"},
		{"bad address", []string{"--listen", "localhost:80", hello}, 1, "", "not an IP address"},
		{"bad user", []string{"--user", "me", hello}, 1, "", "UID:GID"},
		{"bad variable", []string{"--env", "=x", hello}, 1, "", "no name"},
		{"argument that is not UTF-8", []string{hello, "a\xff"}, 1, "", `"a\xff" is not UTF-8`},
		{"variable that is not UTF-8", []string{"--env", "A=\xff", hello}, 1, "", `"A=\xff" is not UTF-8`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &wasmBench{t: t, dir: b.dir, places: b.places}
			stdout, stderr := b.call(c.code, append([]string{"run"}, c.args...)...)
			has(t, stdout, c.stdout)
			has(t, stderr, c.stderr)
			b.checkNothingLeft()
		})
	}
	t.Run("relative directories", func(t *testing.T) {
		b := &wasmBench{t: t, dir: b.dir, places: b.places}
		t.Chdir(shared)
		b.file("shared/deep/file", []byte("deep\n"))
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"--dir", ".", "--user", "1234", probe, "read:file", "read:/deep/file", "write:other"}, "read:file=content\nread:/deep/file=deep\nwrite:other=ok\n"},
			{[]string{"--dir", ".:ro", "--user", "1234", probe, "read:file", "write:none"}, "read:file=content\nwrite:none=Read-only file system\n"},
			{[]string{"--dir", "deep", "--listen", "127.0.0.1:39871", "--workdir", "/deep", probe, "read:deep/file", "env:PWD"}, "read:deep/file=deep\nenv:PWD=/deep\n"},
			{[]string{"--dir", ".", "--host-network", "--user", "1234", probe, "list:/"}, "list:/=4\n"}, // deep, file, new, other: no mount points
		} {
			stdout, _ := b.call(0, append([]string{"run"}, c.args...)...)
			if stdout != c.want {
				t.Errorf("%q: %q, want %q", c.args, stdout, c.want)
			}
		}
		if _, err := os.Stat("other"); err != nil || os.Remove("other") != nil {
			t.Errorf("what the guest wrote: %v", err)
		}
		has(t, second(b.call(128, "run", "--dir", ".", "--dir", "/tmp:/tmp", hello)), "is the guest's root")
		has(t, second(b.call(1, "run", "--dir", "..", hello)), "leads out of the working directory")
		has(t, second(b.call(1, "run", "--workdir", "x", hello)), "not absolute")
		b.checkNothingLeft()
	})
	if info, err := os.Stat(filepath.Join(shared, "new")); err != nil || info.Sys().(*syscall.Stat_t).Uid != 1234 {
		t.Errorf("the new file: %v", err)
	}
}

// running is a command that runs.
type running struct {
	b      *wasmBench
	cmd    *exec.Cmd
	stdout *bufio.Reader
	notes  chan string // lines of standard error; closed at its end
	ended  chan struct{}
}

func (b *wasmBench) start(stdin *os.File, args ...string) *running {
	b.t.Helper()
	r := &running{b: b, cmd: b.command(append([]string{"run"}, args...)...), notes: make(chan string, 100), ended: make(chan struct{})}
	out, theirOut := b.pipe()
	errors, theirErrors := b.pipe()
	r.stdout = bufio.NewReader(out)
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = stdin, theirOut, theirErrors
	if err := r.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	theirOut.Close()
	theirErrors.Close()
	go func() {
		defer close(r.notes)
		for lines := bufio.NewScanner(errors); lines.Scan(); {
			r.notes <- lines.Text()
		}
	}()
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // the exit code says it all
	}()
	b.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may have ended
		<-r.ended
	})
	return r
}

// says waits for a line of the guest.
func (r *running) says(want string) {
	r.b.t.Helper()
	line, err := r.stdout.ReadString('\n')
	if line != want+"\n" {
		r.b.t.Fatalf("the guest says %q, %v, and not %q", line, err, want)
	}
}

func (r *running) signal(sig syscall.Signal) {
	r.b.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.b.t.Fatal(err)
	}
}

// ends waits for the end.
func (r *running) ends(want int) {
	r.b.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(comesWithin):
		r.b.t.Fatal("it does not end")
	}
	if code := r.cmd.ProcessState.ExitCode(); code != want {
		r.b.t.Errorf("exit code %d, want %d", code, want)
	}
}

// guests are the processes of guests of this test.
func (b *wasmBench) guests() []int { return b.processes("guest") }

// processes are those with this face.
func (b *wasmBench) processes(face string) []int {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.t.Fatal(err)
	}
	var pids []int
	for _, line := range lines {
		data, _ := os.ReadFile(line)
		if strings.HasPrefix(string(data), self+"\x00"+face+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(line)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// runCgroups are the cgroups of runs that have ended: those of others on this machine run on.
func runCgroups() []string {
	flat, _ := filepath.Glob("/sys/fs/cgroup/sunaba-run-*")
	deep, _ := filepath.Glob("/sys/fs/cgroup/*/sunaba-run-*")
	return slices.DeleteFunc(append(flat, deep...), func(dir string) bool {
		_, pid, _ := strings.Cut(filepath.Base(dir), "sunaba-run-")
		_, err := os.Stat(filepath.Join("/proc", pid))
		return err == nil
	})
}

func (b *wasmBench) checkNothingLeft() {
	b.t.Helper()
	if left := b.guests(); len(left) > 0 {
		b.t.Errorf("guests run on: %v", left)
	}
	if left := runCgroups(); len(left) > 0 {
		b.t.Errorf("cgroups are left: %q", left)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(b.dir)) {
		b.t.Errorf("mounts are left (%v)", err)
	}
}

// pipe is a pipe, both ends of which are closed by the end of the test.
func (b *wasmBench) pipe() (out, in *os.File) {
	b.t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { out.Close(); in.Close() })
	return out, in
}

func TestWasmRunStops(t *testing.T) {
	b := newWasmBench(t)
	probe := b.file("probe.wasm", cGuest(t, "probe"))
	t.Run("a guest that hears nothing ends", func(t *testing.T) {
		for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
			r := b.start(nil, probe, "sleep")
			r.says("sleep=on")
			r.signal(sig)
			r.ends(143)
			b.checkNothingLeft()
		}
	})
	t.Run("the input ends", func(t *testing.T) {
		theirs, _ := b.pipe()
		r := b.start(theirs, probe, "env:HOME", "line", "env:HOME")
		r.says("env:HOME=")
		r.signal(unix.SIGTERM)
		r.says("env:HOME=")
		r.ends(0)
		b.checkNothingLeft()
	})
	t.Run("the grace ends", func(t *testing.T) {
		r := b.start(nil, "--stop-wait", "--grace", "100ms", probe, "spin")
		r.says("spin=on")
		r.signal(unix.SIGINT)
		r.ends(137)
		b.checkNothingLeft()
	})
	t.Run("asked twice", func(t *testing.T) {
		theirs, _ := b.pipe()
		r := b.start(theirs, "--grace", "1h", probe, "sleep")
		r.says("sleep=on")
		r.signal(unix.SIGINT)
		has(t, r.note(), "once more kills it")
		r.signal(unix.SIGINT)
		r.ends(137)
		b.checkNothingLeft()
	})
}

// note is the next line of standard error.
func (r *running) note() string {
	r.b.t.Helper()
	select {
	case text := <-r.notes:
		return text
	case <-time.After(comesWithin):
		r.b.t.Fatal("nothing comes on standard error")
		return ""
	}
}

// TestWasmRunListens talks to a guest's listener on one address of the node.
func TestWasmRunListens(t *testing.T) {
	b := newWasmBench(t)
	probe := b.file("probe.wasm", cGuest(t, "probe"))
	free, err := node.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(free)
	address := net.JoinHostPort("127.0.0.1", port)
	r := b.start(nil, "--listen", address, probe, "serve")
	r.says("serve=port-" + port)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); err != nil || string(text) != "hello\n" {
		t.Errorf("got %q, %v", text, err)
	}
	conn.Close()
	if conn, err := net.Dial("tcp", "127.0.0.2:"+port); err == nil {
		conn.Close()
		t.Error("it listens on every address")
	}
	_, stderr := b.call(128, "run", "--listen", address, probe, "serve")
	has(t, stderr, "listen on port "+port, "address already in use")
	r.signal(unix.SIGTERM)
	r.ends(5) // what this guest does when its listener ends
	b.checkNothingLeft()
}

// TestWasmRunKilled kills the command: its guest ends with it, and the next run removes the empty
// cgroup.
func TestWasmRunKilled(t *testing.T) {
	b := newWasmBench(t)
	probe := b.file("probe.wasm", cGuest(t, "probe"))
	for _, what := range []string{"sleep", "spin"} {
		r := b.start(nil, probe, what)
		r.says(what + "=on")
		guests := b.guests()
		if len(guests) != 1 {
			t.Fatalf("guests %v", guests)
		}
		fd, err := unix.PidfdOpen(guests[0], 0)
		if err != nil {
			t.Fatal(err)
		}
		r.signal(unix.SIGKILL)
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(comesWithin.Milliseconds()))
		for err == unix.EINTR {
			n, err = unix.Poll(fds, int(comesWithin.Milliseconds()))
		}
		if err != nil || n != 1 {
			t.Errorf("the guest runs on: %v", err)
		}
		unix.Close(fd)
		r.ends(-1)
	}
	if len(runCgroups()) == 0 {
		t.Error("there is nothing to sweep: the test shows nothing")
	}
	b.call(0, "run", probe)
	b.checkNothingLeft()
}

// TestWasmRunInterruptedEarly asks for the end while the module is being compiled.
func TestWasmRunInterruptedEarly(t *testing.T) {
	b := newWasmBench(t)
	r := b.start(nil, b.file("long.wasm", longModule()))
	for deadline := time.Now().Add(comesWithin); len(b.processes("compile")) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is compiled")
		}
	}
	r.signal(unix.SIGINT)
	r.ends(128 + int(unix.SIGINT))
	if left := b.processes("compile"); len(left) > 0 {
		t.Errorf("compilers run on: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, "root", "wasm", "*-*")); len(left) > 0 {
		t.Errorf("the cache has %q", left)
	}
	b.checkNothingLeft()
}

// longModule is a command that takes seconds to compile: thousands of functions that add and do
// nothing with it.
func longModule() []byte {
	const functions, additions = 3000, 2000
	body := append([]byte{0}, bytes.Repeat([]byte{0x41, 1, 0x41, 2, 0x6a, 0x1a}, additions)...) // i32.const 1, i32.const 2, i32.add, drop
	body = append(body, 0x0b)
	code := binary.AppendUvarint(nil, functions)
	for range functions {
		code = append(binary.AppendUvarint(code, uint64(len(body))), body...)
	}
	return format.Join([]format.Section{
		format.NewSection(format.SectionType, []byte{1, 0x60, 0, 0}),
		format.NewSection(format.SectionFunction, append(binary.AppendUvarint(nil, functions), make([]byte, functions)...)),
		format.NewSection(format.SectionExport, append([]byte{1, 6}, "_start\x00\x00"...)),
		format.NewSection(format.SectionCode, code),
	})
}

// TestWasmRunTerminal runs a guest on a terminal that is the command's own, as a shell does.
func TestWasmRunTerminal(t *testing.T) {
	b := newWasmBench(t)
	probe := b.file("probe.wasm", cGuest(t, "probe"))
	master, slave := pty.Open(t)
	cmd := b.command("run", probe, "env:HOME", "line", "env:HOME")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	out := bufio.NewReader(master)
	says := func(want string) {
		t.Helper()
		line, err := out.ReadString('\n')
		if strings.Contains(line, "sunaba: compiled ") { // a busy machine takes long enough for that to be told
			line, err = out.ReadString('\n')
		}
		if strings.TrimRight(line, "\r\n") != want {
			t.Fatalf("the terminal shows %q, %v, and not %q", line, err, want)
		}
	}
	says("env:HOME=")
	if _, err := master.Write([]byte("\x03")); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	says("^Cenv:HOME=")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	b.checkNothingLeft()
}

// A large file that was run is not hashed again, and what runs is what the file has now.
func TestWasmRunOfAChangedFile(t *testing.T) {
	b := newWasmBench(t)
	const size = 1 << 20
	large := func(name string) []byte {
		guest := cGuest(t, name)
		rest := append([]byte{4}, "rest"...)
		rest = append(rest, make([]byte, size-len(guest)-len(rest)-4)...) // and 4 of its header
		return append(guest[:len(guest):len(guest)], format.Join([]format.Section{format.NewSection(0, rest)})[8:]...)
	}
	file := b.file("guest.wasm", large("hello"))
	info, err := os.Stat(file)
	if err != nil || info.Size() != size {
		t.Fatalf("%+v, %v", info, err)
	}
	b.call(0, "compile", file)
	time.Sleep(time.Until(info.ModTime().Add(3 * time.Second))) // from then on it may have a note
	for range 3 {
		has(t, first(b.call(0, "run", file, "env:X")), "hello env:X\n")
	}
	data := large("probe")
	for _, change := range []func() error{
		func() error { return os.WriteFile(file, data, 0o644) },
		func() error { return os.Rename(b.file("other.wasm", large("hello")), file) },
		func() error { return os.Rename(b.file("other.wasm", data), file) },
	} {
		if err := errors.Join(change(), os.Chtimes(file, info.ModTime(), info.ModTime())); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := "hello env:X\n"
		if bytes.Equal(now, data) {
			want = "env:X=\n"
		}
		for range 2 {
			if out := first(b.call(0, "run", file, "env:X")); out != want {
				t.Errorf("it says %q, want %q", out, want)
			}
		}
	}
	b.checkNothingLeft()
}
