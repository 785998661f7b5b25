package wasip1

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// sub is a subscription: of a descriptor or a clock in what, with timeout and flags for clocks.
type sub struct {
	kind    uint8
	what    uint32
	timeout uint64
	flags   uint16
}

// subscribe puts subscriptions into memory, with their index + 100 as user data.
func subscribe(c *caller, subs ...sub) uint64 {
	for i, s := range subs {
		b := c.Bytes(atSubs+uint32(i)*sizeSubscription, sizeSubscription)
		clear(b)
		put64(b, uint64(i+100))
		b[8] = s.kind
		put32(b[16:], s.what)
		put64(b[24:], s.timeout)
		put16(b[40:], s.flags)
	}
	return uint64(len(subs))
}

type event struct {
	index int
	err   Errno
	kind  uint8
	bytes uint64
	flags uint16
}

// poll calls poll_oneoff.
func (c *caller) poll(subs ...sub) []event {
	c.Helper()
	n := subscribe(c, subs...)
	c.must("poll_oneoff", atSubs, atEvents, n, atResult)
	var all []event
	for i := range c.U32(atResult) {
		at := atEvents + i*sizeEvent
		e, _ := c.Mem.ReadUint16Le(at + 8)
		flags, _ := c.Mem.ReadUint16Le(at + 24)
		all = append(all, event{int(c.U64(at)) - 100, Errno(e), c.Bytes(at+10, 1)[0], c.U64(at + 16), flags})
	}
	return all
}

// check compares events.
func (c *caller) check(got []event, want ...event) {
	c.Helper()
	if len(got) != len(want) {
		c.Fatalf("events %+v, want %+v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			c.Errorf("event %+v, want %+v", got[i], want[i])
		}
	}
}

// pipeBuf is what a pipe with room is said to have room for, at least.
const pipeBuf = 4096

const ms = uint64(time.Millisecond)

func TestPollClocks(t *testing.T) {
	c := newCaller(t, Config{})
	now := func(clock uint64) uint64 { c.must("clock_time_get", clock, 0, atData); return c.U64(atData) }
	c.want(einval, "poll_oneoff", atSubs, atEvents, 0, atResult)
	c.want(enomem, "poll_oneoff", atSubs, atEvents, 1<<20, atResult)
	tick := event{0, success, eventClock, 0, 0}
	for _, s := range []func() sub{
		func() sub { return sub{eventClock, clockMonotonic, 20 * ms, 0} },
		func() sub { return sub{eventClock, clockRealtime, 20 * ms, 0} },
		func() sub { return sub{eventClock, clockMonotonic, now(1) + 20*ms, 1} },
		func() sub { return sub{eventClock, clockRealtime, now(0) + 20*ms, 1} },
	} {
		wasitest.Took(t, 19*time.Millisecond, func() { c.check(c.poll(s()), tick) })
	}
	for _, s := range []sub{
		{eventClock, clockMonotonic, 0, 0}, {eventClock, clockMonotonic, 0, 1},
		{eventClock, clockRealtime, 1, 1}, {eventClock, clockMonotonic, now(1) - 1, 1},
	} {
		wasitest.Took(t, 0, func() { c.check(c.poll(s), tick) })
	}
	// Only the clocks that have struck, and those that are wrong at once.
	c.check(c.poll(sub{eventClock, clockMonotonic, 1 << 63, 0}, sub{eventClock, clockMonotonic, 5 * ms, 0}),
		event{1, success, eventClock, 0, 0})
	c.check(c.poll(sub{eventClock, clockMonotonic, 1 << 62, 0}, sub{eventClock, 9, 0, 0}, sub{eventClock, clockProcess, 0, 0},
		sub{eventClock, clockMonotonic, 0, 2}, sub{7, 0, 0, 0}, sub{eventRead, 55, 0, 0}),
		event{1, einval, eventClock, 0, 0}, event{2, enotsup, eventClock, 0, 0}, event{3, einval, eventClock, 0, 0},
		event{4, einval, 7, 0, 0}, event{5, ebadf, eventRead, 0, 0})
}

func TestPollFiles(t *testing.T) {
	c := newCaller(t, Config{})
	c.put("f", "12345")
	fd := uint32(c.open("f", 0, rightsFile, 0))
	c.read(uint64(fd), 2)
	timeout := sub{eventClock, clockMonotonic, 1 << 62, 0}
	c.check(c.poll(timeout, sub{eventRead, fd, 0, 0}, sub{eventWrite, fd, 0, 0}),
		event{1, success, eventRead, 3, 0}, event{2, success, eventWrite, pipeBuf, 0})
	c.must("fd_fdstat_set_rights", uint64(fd), uint64(rightFdRead|rightPollFdReadwrite), 0)
	c.check(c.poll(timeout, sub{eventRead, fd, 0, 0}, sub{eventWrite, fd, 0, 0}),
		event{1, success, eventRead, 3, 0}, event{2, enotcapable, eventWrite, 0, 0})
	c.check(c.poll(sub{eventRead, 0, 0, 0}, sub{eventWrite, 1, 0, 0}), // absent streams
		event{0, success, eventRead, 0, eventHangup}, event{1, success, eventWrite, pipeBuf, 0})
}

func TestPollPipes(t *testing.T) {
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	defer inR.Close()
	defer outR.Close()
	defer outW.Close()
	c := newCaller(t, Config{Stdin: int(inR.Fd()), Stdout: int(outW.Fd()), Stderr: -1})
	soon := sub{eventClock, clockMonotonic, 20 * ms, 0}
	read, write := sub{eventRead, 0, 0, 0}, sub{eventWrite, 1, 0, 0}
	wasitest.Took(t, 19*time.Millisecond, func() {
		c.check(c.poll(soon, read), event{0, success, eventClock, 0, 0})
	})
	c.check(c.poll(soon, read, write), event{2, success, eventWrite, pipeBuf, 0})
	go func() {
		time.Sleep(10 * time.Millisecond)
		inW.Write([]byte("abc"))
	}()
	c.check(c.poll(read), event{0, success, eventRead, 3, 0})
	c.check(c.poll(read, read), event{0, success, eventRead, 3, 0}, event{1, success, eventRead, 3, 0})

	// Non-blocking in the guest, although the pipe itself is not.
	c.must("fd_fdstat_set_flags", 0, uint64(flagNonblock))
	c.must("fd_fdstat_set_flags", 1, uint64(flagNonblock))
	if got, e := c.read(0, 10); got != "abc" || e != success {
		t.Errorf("read %q, %d", got, e)
	}
	if _, e := c.read(0, 10); e != eagain {
		t.Errorf("read of an empty pipe: %d", e)
	}
	p, n := c.Iovec(40000)
	for range 100 {
		if e := c.do("fd_write", 1, p, n, atResult); e == eagain {
			break
		} else if e != success {
			t.Fatal(e)
		}
	}
	c.want(eagain, "fd_write", 1, p, n, atResult)
	wasitest.Took(t, 19*time.Millisecond, func() { c.check(c.poll(soon, write), event{0, success, eventClock, 0, 0}) })
	for _, f := range []*os.File{inR, outW} {
		if flags, _ := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); flags&unix.O_NONBLOCK != 0 {
			t.Error("the pipe was made non-blocking")
		}
	}
	inW.Close()
	c.check(c.poll(read), event{0, success, eventRead, 0, eventHangup})
	if got, e := c.read(0, 10); got != "" || e != success {
		t.Errorf("read %q, %d", got, e)
	}
}

// Kernels without epoll_pwait2 get the same answers.
func TestPollOldKernel(t *testing.T) {
	r, w, _ := os.Pipe()
	defer r.Close()
	defer w.Close()
	c := newCaller(t, Config{Stdin: int(r.Fd()), Stdout: -1, Stderr: -1})
	c.host.system.Fallbacks.PollEpoll = true
	soon, read := sub{eventClock, clockMonotonic, 20 * ms, 0}, sub{eventRead, 0, 0, 0}
	wasitest.Took(t, 19*time.Millisecond, func() {
		c.check(c.poll(soon, read), event{0, success, eventClock, 0, 0})
	})
	wasitest.Took(t, 20*time.Millisecond, func() {
		go func() {
			time.Sleep(20 * time.Millisecond)
			w.Write([]byte("x"))
		}()
		c.check(c.poll(read), event{0, success, eventRead, 1, 0})
	})
	interrupted(t, c, func() {
		c.read(0, 1)
		c.check(c.poll(sub{eventClock, clockMonotonic, 1 << 62, 0}), event{0, success, eventClock, 0, 0})
	})
}

// What one call was interested in does not wake the next.
func TestPollForgets(t *testing.T) {
	inR, inW, _ := os.Pipe()
	defer inR.Close()
	c := newCaller(t, Config{Stdin: int(inR.Fd()), Stdout: -1, Stderr: -1, Listeners: []Listener{listen(t, "127.0.0.1:0")}})
	inW.Write([]byte("x"))
	inW.Close() // readable and hung up, for good
	listener := sub{eventRead, 3, 0, 0}
	soon := sub{eventClock, clockMonotonic, 20 * ms, 0}
	for range 3 {
		c.check(c.poll(sub{eventRead, 0, 0, 0}, listener), event{0, success, eventRead, 1, eventHangup})
		wasitest.Took(t, 19*time.Millisecond, func() {
			c.check(c.poll(listener, soon), event{1, success, eventClock, 0, 0})
		})
	}
	c.must("fd_close", 0)
	c.check(c.poll(listener, soon), event{1, success, eventClock, 0, 0})
}

func TestPollSockets(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	address := l.Name
	c := newCaller(t, Config{Listeners: []Listener{l}})
	soon := sub{eventClock, clockMonotonic, 20 * ms, 0}
	listener := sub{eventRead, 3, 0, 0}
	c.check(c.poll(listener, soon), event{1, success, eventClock, 0, 0})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c.check(c.poll(listener), event{0, success, eventRead, 1, 0})
	c.must("sock_accept", 3, uint64(flagNonblock), atResult)
	fd := c.U32(atResult)
	read, write := sub{eventRead, fd, 0, 0}, sub{eventWrite, fd, 0, 0}
	c.check(c.poll(read, soon), event{1, success, eventClock, 0, 0})
	if _, e := c.read(uint64(fd), 10); e != eagain {
		t.Error("read of an idle connection:", e)
	}
	conn.Write([]byte("hello"))
	c.check(c.poll(read), event{0, success, eventRead, 5, 0})
	c.check(c.poll(read, write), event{0, success, eventRead, 5, 0}, event{1, success, eventWrite, pipeBuf, 0})
	c.write(uint64(fd), "answer")
	b := make([]byte, 6)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "answer" {
		t.Error(string(b), err)
	}
	conn.Close()
	c.check(c.poll(read), event{0, success, eventRead, 5, eventHangup})
}
