package wasip2

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

const (
	inputMethod  = "io/streams#[method]input-stream."
	outputMethod = "io/streams#[method]output-stream."
)

// TestInputOfAPipe reads what is there, nothing so far, and the end.
func TestInputOfAPipe(t *testing.T) {
	r, w := pipe(t)
	g := newGuest(t, Config{Stdin: fd(t, r), Stdout: -1, Stderr: -1})
	s := g.do("cli/stdin#get-stdin")
	if got, result := g.read("read", s, 10); got != "" || result != "ok" {
		t.Errorf("empty pipe: %q, %s", got, result)
	}
	w.WriteString("hello, world")
	if got, result := g.read("read", s, 5); got != "hello" || result != "ok" {
		t.Errorf("read: %q, %s", got, result)
	}
	if got, result := g.read("read", s, 0); got != "" || result != "ok" {
		t.Errorf("read of nothing: %q, %s", got, result)
	}
	if result := g.flow(8, inputMethod+"skip", s, 2); result != "ok" || g.u64(out+8) != 2 {
		t.Errorf("skip: %d, %s", g.u64(out+8), result)
	}
	other := g.do("cli/stdin#get-stdin")
	if got, result := g.read("blocking-read", other, 1<<40); got != "world" || result != "ok" {
		t.Errorf("another stream of it: %q, %s", got, result)
	}
	wasitest.Took(t, 30*time.Millisecond, func() {
		time.AfterFunc(30*time.Millisecond, func() { w.WriteString("late") })
		if got, result := g.read("blocking-read", s, 100); got != "late" || result != "ok" {
			t.Errorf("blocking-read: %q, %s", got, result)
		}
	})
	wasitest.Took(t, 30*time.Millisecond, func() {
		time.AfterFunc(30*time.Millisecond, func() { w.WriteString("xy") })
		if result := g.flow(8, inputMethod+"blocking-skip", s, 1); result != "ok" || g.u64(out+8) != 1 {
			t.Errorf("blocking-skip: %d, %s", g.u64(out+8), result)
		}
	})
	g.read("read", s, 1)
	w.Close()
	for _, function := range []string{"read", "blocking-read"} {
		if _, result := g.read(function, s, 1); result != "closed" {
			t.Errorf("%s at the end: %s", function, result)
		}
	}
	if _, result := g.read("blocking-read", other, 0); result != "ok" {
		t.Errorf("a stream that has not met the end: %s", result)
	}
}

// TestReadIsBounded moves 64 KiB at once, whatever is asked for.
func TestReadIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(file, make([]byte, 3*maxRead), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := newGuest(t, Config{Stdin: int(f.Fd()), Stdout: -1, Stderr: -1})
	if got, result := g.read("read", g.do("cli/stdin#get-stdin"), 1<<63); len(got) != maxRead || result != "ok" {
		t.Errorf("%d bytes, %s", len(got), result)
	}
}

// TestInterruptEndsStandardInput is how a guest notices that it is to stop.
func TestInterruptEndsStandardInput(t *testing.T) {
	r, w := pipe(t)
	g := newGuest(t, Config{Stdin: fd(t, r), Stdout: -1, Stderr: -1})
	if !g.host.Hears() {
		t.Error("a guest with a standard input does not hear")
	}
	s := g.do("cli/stdin#get-stdin")
	w.WriteString("x")
	if got, _ := g.read("blocking-read", s, 1); got != "x" {
		t.Errorf("got %q", got)
	}
	wasitest.Interrupted(t, g.host.Interrupt, func() {
		if _, result := g.read("blocking-read", s, 1); result != "closed" {
			t.Errorf("interrupted: %s", result)
		}
	})
	p := g.do("clocks/monotonic-clock#subscribe-duration", uint64(time.Hour))
	wasitest.Interrupted(t, g.host.Interrupt, func() { g.do("io/poll#[method]pollable.block", p) })
}

// TestOutputOfAPipe writes as much as check-write permits, and no more.
func TestOutputOfAPipe(t *testing.T) {
	r, w := pipe(t)
	g := newGuest(t, Config{Stdin: -1, Stdout: fd(t, w), Stderr: -1})
	s := g.do("cli/stdout#get-stdout")
	if n, result := g.permit(s); n != 4096 || result != "ok" {
		t.Errorf("check-write: %d, %s", n, result)
	}
	if result := g.write("write", s, strings.Repeat("a", 4096)); result != "ok" {
		t.Errorf("write: %s", result)
	}
	at, _ := g.put("b")
	g.trap("1 bytes written where check-write permits 0", outputMethod+"write", s, at, 1, out)
	for n, _ := g.permit(s); n > 0; n, _ = g.permit(s) { // until the pipe is full
		g.flow(4, outputMethod+"write-zeroes", s, n)
	}
	p := g.do(outputMethod+"subscribe", s)
	if g.do("io/poll#[method]pollable.ready", p) != 0 {
		t.Error("a full pipe is ready")
	}
	read := make(chan []byte)
	go func() { time.Sleep(30 * time.Millisecond); b := make([]byte, 1<<16); io.ReadFull(r, b); read <- b }()
	wasitest.Took(t, 30*time.Millisecond, func() { g.do("io/poll#[method]pollable.block", p) })
	if b := <-read; strings.Count(string(b), "a") != 4096 {
		t.Error("what was written is not what was read")
	}
	for _, result := range []string{
		g.write("blocking-write-and-flush", s, "hello"),
		g.flow(4, outputMethod+"blocking-write-zeroes-and-flush", s, 3),
		g.flow(4, outputMethod+"flush", s), g.flow(4, outputMethod+"blocking-flush", s),
	} {
		if result != "ok" {
			t.Error(result)
		}
	}
	b := make([]byte, 20)
	if n, _ := r.Read(b); string(b[:n]) != "hello\x00\x00\x00" {
		t.Errorf("got %q", b[:n])
	}
	g.trap("4097 bytes written", outputMethod+"blocking-write-and-flush", s, at, 4097, out)
	g.trap("4097 zeroes written", outputMethod+"blocking-write-zeroes-and-flush", s, 4097, out)
	g.permit(s)
	g.trap("permits 4096", outputMethod+"write-zeroes", s, 4097, out)
}

// TestOutputThatNobodyReads is closed, and stays so.
func TestOutputThatNobodyReads(t *testing.T) {
	r, w := pipe(t)
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: fd(t, w)})
	r.Close()
	s := g.do("cli/stderr#get-stderr")
	for range 2 {
		if result := g.write("blocking-write-and-flush", s, "x"); result != "closed" {
			t.Errorf("write: %s", result)
		}
	}
	if _, result := g.permit(s); result != "closed" {
		t.Errorf("check-write: %s", result)
	}
	for _, function := range []string{"flush", "blocking-flush"} {
		if result := g.flow(4, outputMethod+function, s); result != "closed" {
			t.Errorf("%s: %s", function, result)
		}
	}
	for _, function := range []string{"write-zeroes", "blocking-write-zeroes-and-flush"} {
		if result := g.flow(4, outputMethod+function, s, 1); result != "closed" {
			t.Errorf("%s: %s", function, result)
		}
	}
	if result := g.write("write", s, "x"); result != "closed" {
		t.Errorf("write: %s", result)
	}
	if g.do("io/poll#[method]pollable.ready", g.do(outputMethod+"subscribe", s)) != 1 {
		t.Error("a closed stream is not ready")
	}
}

// TestFailedOperation keeps its reason in an error, and closes the stream.
func TestFailedOperation(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	g := newGuest(t, Config{Stdin: -1, Stdout: fd(t, full), Stderr: -1})
	s := g.do("cli/stdout#get-stdout")
	at, n := g.put("x")
	g.do(outputMethod+"blocking-write-and-flush", s, at, n, out)
	if g.u8(out) != 1 || g.u8(out+4) != 0 {
		t.Fatalf("got %d, %d", g.u8(out), g.u8(out+4))
	}
	e := uint64(g.u32(out + 8))
	g.do("io/error#[method]error.to-debug-string", e, out)
	if got := g.text(out); got != unix.ENOSPC.Error() {
		t.Errorf("got %q", got)
	}
	g.do("sockets/network#network-error-code", e, out)
	if g.u8(out) != 0 {
		t.Error("an error of a file has a code of the network")
	}
	g.do("filesystem/types#filesystem-error-code", e, out)
	if g.u8(out) != 1 || codeNames[g.u8(out+1)] != "insufficient-space" {
		t.Errorf("got %d, %d", g.u8(out), g.u8(out+1))
	}
	if result := g.write("blocking-write-and-flush", s, "x"); result != "closed" {
		t.Errorf("then: %s", result)
	}
}

// TestSplice moves what there is, as far as there is room.
func TestSplice(t *testing.T) {
	r, w := pipe(t)
	into, from := pipe(t)
	g := newGuest(t, Config{Stdin: fd(t, r), Stdout: fd(t, from), Stderr: -1})
	in, to := g.do("cli/stdin#get-stdin"), g.do("cli/stdout#get-stdout")
	splice := func(function string, n uint64) (uint64, string) {
		result := g.flow(8, outputMethod+function, to, in, n)
		return g.u64(out + 8), result
	}
	if n, result := splice("splice", 5); n != 0 || result != "ok" {
		t.Errorf("nothing there: %d, %s", n, result)
	}
	w.WriteString("hello, world")
	if n, result := splice("splice", 5); n != 5 || result != "ok" {
		t.Errorf("splice: %d, %s", n, result)
	}
	if n, result := splice("blocking-splice", 1<<40); n != 7 || result != "ok" {
		t.Errorf("blocking-splice: %d, %s", n, result)
	}
	b := make([]byte, 20)
	if n, _ := into.Read(b); string(b[:n]) != "hello, world" {
		t.Errorf("got %q", b[:n])
	}
	if n, result := splice("splice", 0); n != 0 || result != "ok" {
		t.Errorf("splice of nothing: %d, %s", n, result)
	}
	w.Close()
	if _, result := splice("blocking-splice", 1); result != "closed" {
		t.Errorf("the end: %s", result)
	}
}

// TestPoll sleeps until one of several is ready.
func TestPoll(t *testing.T) {
	r, w := pipe(t)
	g := newGuest(t, Config{Stdin: fd(t, r), Stdout: -1, Stderr: -1})
	in, null := g.do("cli/stdin#get-stdin"), g.do("cli/stdout#get-stdout")
	stdin := g.do(inputMethod+"subscribe", in)
	writable := g.do(outputMethod+"subscribe", null)
	soon := g.do("clocks/monotonic-clock#subscribe-duration", uint64(30*time.Millisecond))
	now := g.do("clocks/monotonic-clock#subscribe-instant", 0)
	never := g.do("clocks/monotonic-clock#subscribe-duration", ^uint64(0))
	same(t, "always ready", g.poll(stdin, writable, now, never), []uint32{1, 2})
	wasitest.Took(t, 20*time.Millisecond, func() { same(t, "clock", g.poll(never, stdin, soon, soon), []uint32{2, 3}) })
	for _, p := range []struct{ handle, ready uint64 }{{stdin, 0}, {writable, 1}, {soon, 1}, {now, 1}, {never, 0}} {
		if got := g.do("io/poll#[method]pollable.ready", p.handle); got != p.ready {
			t.Errorf("ready of %d: %d", p.handle, got)
		}
	}
	wasitest.Took(t, 30*time.Millisecond, func() {
		time.AfterFunc(30*time.Millisecond, func() { w.WriteString("x") })
		same(t, "pipe", g.poll(never, stdin), []uint32{1})
	})
	w.Close()
	g.read("read", in, 1)
	same(t, "hangup", g.poll(never, stdin), []uint32{1})
	g.trap("is empty", "io/poll#poll", 0x800, 0, out)
	g.trap("more than 65536 pollables", "io/poll#poll", 0x1000, maxSubscriptions+1, out)
	g.trap("not aligned", "io/poll#poll", 0x801, 1, out)
	g.trap("out of bounds", "io/poll#poll", 0x800, 1<<31, out)
	g.mem.WriteUint32Le(0x800, 77)
	g.trap("unknown handle index 77", "io/poll#poll", 0x800, 1, out)
	g.mem.WriteUint32Le(0x800, uint32(in))
	g.trap("wrong type", "io/poll#poll", 0x800, 1, out)
}
