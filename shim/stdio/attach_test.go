package stdio

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ends makes a FIFO and opens both of its ends, as callers of Attach do before they call.
func ends(t *testing.T) (path string, r, w *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if r, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
		w, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return path, r, w
}

// hear attaches to stdout.
func hear(t *testing.T, s *Streams) *os.File {
	t.Helper()
	path, r, w := ends(t)
	if err := s.Attach(Attachment{Stdout: path}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return r
}

func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}

func expectEnd(t *testing.T, r io.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Fatalf("read %q, %v; want the end", rest, err)
	}
}

func TestAttachToOutput(t *testing.T) {
	log := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdout: Scheme + log, Stderr: Scheme + log})
	_, stdout, stderr := child(t, s)
	s.Start(nil)
	fmt.Fprintln(stdout, "before")
	for !strings.Contains(read(t, log), "before") {
		time.Sleep(time.Millisecond)
	}
	first, second := hear(t, s), hear(t, s)
	fmt.Fprintln(stderr, "not asked for")
	fmt.Fprintln(stdout, "both")
	expect(t, first, "both\n")
	expect(t, second, "both\n")
	first.Close()
	fmt.Fprintln(stdout, "second")
	expect(t, second, "second\n")
	stdout.Close()
	expectEnd(t, second)
	stderr.Close()
	wait(t, "drain", s.Drained())
	if out, errs := parse(t, read(t, log)); out != "before\nboth\nsecond\n" || errs != "not asked for\n" {
		t.Errorf("the log has %q and %q", out, errs)
	}
	expectEnd(t, hear(t, s)) // what has ended already has no other end
}

func TestAttachWithoutLog(t *testing.T) {
	s := open(t, Config{Stdout: Attachable})
	_, stdout, _ := child(t, s)
	s.Start(nil)
	io.WriteString(stdout, strings.Repeat("unheard", 1<<20))
	r := hear(t, s)
	io.WriteString(stdout, "heard")
	for heard := ""; !strings.HasSuffix(heard, "heard"); { // the end of what was not heard may still be on its way
		buf := make([]byte, 4096)
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		heard = string(buf[:n])
	}
}

// An attacher that does not read is let go; neither the log nor another attacher waits for it.
func TestSlowAttacher(t *testing.T) {
	log := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdout: Scheme + log})
	_, stdout, _ := child(t, s)
	s.Start(nil)
	slow, quick := hear(t, s), hear(t, s)
	line := strings.Repeat("x", 999) + "\n"
	const lines = 4000
	got := make(chan int, lines)
	go func() {
		defer close(got)
		buf := make([]byte, 64<<10)
		for n := 1; n > 0; {
			n, _ = quick.Read(buf)
			got <- n
		}
	}()
	heard := 0
	hears := func() bool { // reports whether the quick one is still there
		select {
		case n, open := <-got:
			heard += n
			return open
		case <-time.After(time.Minute):
			t.Fatalf("the quick one hears nothing after %d bytes", heard)
			return false
		}
	}
	for n := range lines {
		io.WriteString(stdout, line)
		for behind := n*len(line) - heard; behind > maxBehind/2 && hears(); { // however busy the machine is
			behind = n*len(line) - heard
		}
	}
	stdout.Close()
	wait(t, "drain", s.Drained())
	if out, _ := parse(t, read(t, log)); out != strings.Repeat(line, lines) {
		t.Errorf("the log has %d bytes of %d", len(out), lines*len(line))
	}
	for hears() {
	}
	if heard != lines*len(line) {
		t.Errorf("the quick one got %d bytes of %d", heard, lines*len(line))
	}
	if data, err := io.ReadAll(slow); err != nil || len(data) > maxBehind+1<<20 {
		t.Errorf("the slow one got %d bytes, %v", len(data), err)
	}
}

// The shim's end of an attacher's FIFO is closed when the attacher goes, also if nothing is
// written.
func TestAttacherLeavesQuietly(t *testing.T) {
	s := open(t, Config{Stdout: Attachable})
	child(t, s)
	s.Start(nil)
	path, r, w := ends(t)
	if err := s.Attach(Attachment{Stdout: path}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	for deadline := time.Now().Add(time.Minute); opened(t, path); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the FIFO is still open")
		}
	}
	if err := s.Attach(Attachment{Stdout: path}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("attach without a reader: %v", err)
	}
	if err := s.Attach(Attachment{Stdout: filepath.Join(filepath.Dir(path), "none")}); err == nil {
		t.Error("attached to what is not there")
	}
}

// opened says whether this process has a file open.
func opened(t *testing.T, path string) bool {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == path {
			return true
		}
	}
	return false
}

func TestAttachToInput(t *testing.T) {
	s := open(t, Config{Stdin: Attachable})
	stdin, _, _ := child(t, s)
	s.Start(nil)
	say := func(text string, once bool) {
		path, r, w := ends(t)
		if err := s.Attach(Attachment{Stdin: path, Once: once}); err != nil {
			t.Fatal(err)
		}
		r.Close()
		io.WriteString(w, text)
		w.Close()
	}
	say("one ", false)
	expect(t, stdin, "one ")
	say("two ", false)
	expect(t, stdin, "two ")
	say("last", true)
	expect(t, stdin, "last")
	expectEnd(t, stdin)
	path, r, w := ends(t)
	if err := s.Attach(Attachment{Stdin: path}); err != nil {
		t.Errorf("attach to an input that has ended: %v", err)
	}
	r.Close()
	if _, err := w.WriteString("x"); err == nil {
		t.Error("an input that has ended took something")
	}
}

func TestCloseAttachedInput(t *testing.T) {
	s := open(t, Config{Stdin: Attachable})
	stdin, _, _ := child(t, s)
	s.Start(nil)
	path, r, w := ends(t)
	if err := s.Attach(Attachment{Stdin: path}); err != nil {
		t.Fatal(err)
	}
	r.Close()
	io.WriteString(w, "written")
	s.CloseStdin()
	expect(t, stdin, "written")
	expectEnd(t, stdin)
}

func TestAttachToTerminal(t *testing.T) {
	s := open(t, Config{Stdin: Attachable, Stdout: Attachable, Terminal: true})
	in, _, _ := child(t, s)
	s.Start(nil)
	outPath, out, w := ends(t)
	inPath, r, keys := ends(t)
	if err := s.Attach(Attachment{Stdin: inPath, Stdout: outPath, Stderr: "not looked at", Once: true}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	fmt.Fprint(keys, "echo\n")
	expect(t, out, "echo\r\n")
	expect(t, in, "echo\n")
	keys.Close()
	fmt.Fprint(in, "still open")
	expect(t, out, "still open")
	in.Close()
	s.Close()
	expectEnd(t, out)
}

func TestAttachToCallersStreams(t *testing.T) {
	path, _, _ := ends(t)
	s := open(t, Config{Stdout: path})
	s.Start(nil)
	if err := s.Attach(Attachment{Stdout: path}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("attach to a caller's FIFO: %v", err)
	}
}

// Without its reader, output by a loose FIFO does not hold the process up.
func TestLooseReaderLeaves(t *testing.T) {
	path, r, w := ends(t)
	s := open(t, Config{Stdout: Loose + path})
	_, stdout, _ := child(t, s)
	s.Start(nil)
	w.Close()
	io.WriteString(stdout, "heard")
	expect(t, r, "heard")
	r.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		stdout.Write(bytes.Repeat([]byte("x"), 1<<20))
		stdout.Close()
	}()
	wait(t, "write", done)
	wait(t, "drain", s.Drained())
}

// Output that awaits an attacher is not read before one comes, then all of it reaches that one,
// however late it reads.
func TestAwaitAttach(t *testing.T) {
	log := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdout: Scheme + log, Stderr: Scheme + log, AwaitAttach: true})
	_, stdout, stderr := child(t, s)
	stderr.Close()
	s.Start(nil)
	line := strings.Repeat("x", 999) + "\n"
	const lines = 5000
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for range lines {
			io.WriteString(stdout, line)
		}
		stdout.Close()
	}()
	time.Sleep(20 * time.Millisecond)
	if text := read(t, log); text != "" {
		t.Errorf("the log has %d bytes before anybody has attached", len(text))
	}
	r := hear(t, s)
	select {
	case <-wrote:
		t.Error("the program did not wait for a reader that does not read")
	case <-time.After(50 * time.Millisecond):
	}
	got, err := io.ReadAll(r)
	if err != nil || string(got) != strings.Repeat(line, lines) {
		t.Errorf("got %d bytes of %d, %v", len(got), lines*len(line), err)
	}
	wait(t, "drain", s.Drained())
	if out, _ := parse(t, read(t, log)); out != strings.Repeat(line, lines) {
		t.Errorf("the log has %d bytes of %d", len(out), lines*len(line))
	}
}

// An attacher that output waits for may leave, and the streams may be closed: the program and its
// log do not wait then.
func TestAwaitedAttacherLeaves(t *testing.T) {
	for name, end := range map[string]func(s *Streams, r *os.File){
		"leaves": func(_ *Streams, r *os.File) { r.Close() },
		"closed": func(s *Streams, _ *os.File) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "0.log")
			s := open(t, Config{Stdout: Scheme + log, AwaitAttach: true})
			_, stdout, _ := child(t, s)
			s.Start(nil)
			r := hear(t, s)
			done := make(chan struct{})
			go func() {
				defer close(done)
				io.WriteString(stdout, strings.Repeat("y", 4<<20))
				stdout.Close()
			}()
			select {
			case <-done:
				t.Error("the program did not wait")
			case <-time.After(50 * time.Millisecond):
			}
			end(s, r)
			wait(t, "write", done)
			wait(t, "drain", s.Drained())
		})
	}
}

// Without an attacher, closing ends the waiting, and what was written is in the log.
func TestNobodyAttaches(t *testing.T) {
	log := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdout: Scheme + log, AwaitAttach: true})
	_, stdout, _ := child(t, s)
	s.Awaited() // nothing is started: there is no output to wait with
	s.Start(nil)
	fmt.Fprintln(stdout, "unheard")
	stdout.Close()
	s.Close()
	s.Awaited()
	wait(t, "drain", s.Drained())
	if out, _ := parse(t, read(t, log)); out != "unheard\n" {
		t.Errorf("the log has %q", out)
	}
}

// What is left of closed streams is waited for while an attacher takes it, and not for one that
// takes nothing.
func TestHeard(t *testing.T) {
	const most, silence = 20 * time.Second, 500 * time.Millisecond
	for name, reads := range map[string]bool{"reads": true, "takes nothing": false} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{Stdout: Attachable, AwaitAttach: true})
			_, stdout, _ := child(t, s)
			s.Start(nil)
			r := hear(t, s)
			io.WriteString(stdout, strings.Repeat("z", maxBehind))
			stdout.Close()
			wait(t, "drain", s.Drained())
			s.Close()
			got := make(chan int, 1)
			if reads {
				go func() {
					n := 0
					for buf := make([]byte, chunk); ; time.Sleep(20 * time.Millisecond) {
						m, err := r.Read(buf)
						if n += m; err != nil {
							got <- n
							return
						}
					}
				}()
			}
			began := time.Now()
			s.Heard(silence, most)
			took := time.Since(began)
			if !reads && (took < silence || took > most/2) {
				t.Errorf("it waited for %s", took)
			}
			if reads {
				if n := <-got; n != maxBehind || took < silence || time.Since(began)-took > most/2 {
					t.Errorf("it waited for %s, %d bytes came within %s", took, n, time.Since(began))
				}
			}
		})
	}
}
