package wasip1

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// listen makes a listener as the guest process gets it. Its name is its address.
func listen(t testing.TB, address string) Listener {
	t.Helper()
	fd, bound := wasitest.Listen(t, address)
	return Listener{FD: fd, Name: bound}
}

// connected returns a guest's connection and the other end of it.
func connected(t *testing.T) (*caller, uint64, net.Conn) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	c := newCaller(t, Config{Listeners: []Listener{l}})
	conn, err := net.Dial("tcp", l.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c.check(c.poll(sub{eventRead, 3, 0, 0}), event{0, success, eventRead, 1, 0})
	c.must("sock_accept", 3, 0, atResult)
	return c, uint64(c.U32(atResult)), conn
}

func TestAccept(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	c := newCaller(t, Config{Listeners: []Listener{l}})
	c.want(eagain, "sock_accept", 3, 0, atResult)
	c.want(einval, "sock_accept", 3, 1, atResult)
	c.want(efault, "sock_accept", 3, 0, 2*65536)
	c.must("fd_fdstat_set_flags", 3, 0)
	go func() {
		time.Sleep(20 * time.Millisecond)
		conn, err := net.Dial("tcp", l.Name)
		if err == nil {
			conn.Write([]byte("late"))
			conn.Close()
		}
	}()
	c.must("sock_accept", 3, uint64(flagNonblock), atResult)
	fd := uint64(c.U32(atResult))
	c.must("fd_fdstat_get", fd, atData)
	if flags, _ := c.Mem.ReadUint16Le(atData + 2); flags != flagNonblock || c.Bytes(atData, 1)[0] != typeSocketStream {
		t.Errorf("fdstat % x", c.Bytes(atData, 24))
	}
	c.must("fd_fdstat_set_flags", fd, 0)
	if got, e := c.read(fd, 10); got != "late" || e != success {
		t.Errorf("read %q, %d", got, e)
	}
	if got, e := c.read(fd, 10); got != "" || e != success {
		t.Errorf("read at the end %q, %d", got, e)
	}
	c.want(einval, "sock_accept", fd, 0, atResult)
	c.must("fd_filestat_get", fd, atData)
	if c.Bytes(atData+16, 1)[0] != typeSocketStream {
		t.Error("filestat has another type")
	}
}

func TestRecvSend(t *testing.T) {
	c, fd, conn := connected(t)
	conn.Write([]byte("hello"))
	p, n := c.Iovec(3)
	c.must("sock_recv", fd, p, n, uint64(recvPeek), atResult, atResult+4)
	if got := string(c.Bytes(atData, c.U32(atResult))); got != "hel" {
		t.Errorf("peeked %q", got)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		conn.Write([]byte(" world"))
	}()
	p, n = c.Iovec(11)
	c.must("sock_recv", fd, p, n, uint64(recvWaitAll), atResult, atResult+4)
	if got := string(c.Bytes(atData, c.U32(atResult))); got != "hello world" {
		t.Errorf("received %q", got)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		conn.Write([]byte("abc"))
	}()
	p, n = c.Iovec(3)
	c.must("sock_recv", fd, p, n, uint64(recvWaitAll|recvPeek), atResult, atResult+4)
	c.must("sock_recv", fd, p, n, 0, atResult, atResult+4)
	c.want(einval, "sock_recv", fd, p, n, 4, atResult, atResult+4)
	c.want(einval, "sock_send", fd, p, n, 1, atResult)
	c.must("sock_send", fd, p, n, 0, atResult)
	b := make([]byte, 3)
	if _, err := conn.Read(b); err != nil || string(b) != "abc" {
		t.Error(string(b), err)
	}
	c.must("sock_shutdown", fd, uint64(shutWrite))
	if n, err := conn.Read(b); n != 0 || err == nil {
		t.Error("the other end did not see the shutdown")
	}
	c.want(epipe, "sock_send", fd, p, n, 0, atResult)
	c.want(epipe, "fd_write", fd, p, n, atResult)
	c.must("sock_shutdown", fd, uint64(shutRead))
	if got, e := c.read(fd, 10); got != "" || e != success {
		t.Errorf("read %q, %d", got, e)
	}
}

// A blocking guest's large write ends whole, though the socket's buffer is small.
func TestSendAll(t *testing.T) {
	c, fd, conn := connected(t)
	const size, times = 65536, 100
	for i := range uint32(2) {
		c.Mem.WriteUint32Le(atIovecs+8*i, atData)
		c.Mem.WriteUint32Le(atIovecs+8*i+4, size/2)
	}
	total := make(chan int)
	go func() {
		time.Sleep(20 * time.Millisecond)
		sum, b := 0, make([]byte, 10000)
		for {
			n, err := conn.Read(b)
			if sum += n; err != nil {
				total <- sum
				return
			}
		}
	}()
	for range times {
		c.must("fd_write", fd, atIovecs, 2, atResult)
		if got := c.U32(atResult); got != size {
			t.Fatalf("wrote %d", got)
		}
	}
	c.must("fd_close", fd)
	if got := <-total; got != size*times {
		t.Errorf("received %d bytes", got)
	}
}

// interrupted runs a call that blocks and interrupts it.
func interrupted(t *testing.T, c *caller, call func()) {
	t.Helper()
	wasitest.Interrupted(t, c.host.Interrupt, call)
}

func TestInterruptAccept(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	c := newCaller(t, Config{Listeners: []Listener{l}})
	if !c.host.Hears() {
		t.Error("a guest with a listener does not hear")
	}
	c.must("fd_fdstat_set_flags", 3, 0)
	interrupted(t, c, func() { c.want(einval, "sock_accept", 3, 0, atResult) })
	c.want(einval, "sock_accept", 3, 0, atResult)
	if conn, err := net.DialTimeout("tcp", l.Name, time.Second); err == nil {
		conn.Close()
		t.Error("the listener still accepts")
	}
	c.check(c.poll(sub{eventRead, 3, 0, 0}), event{0, success, eventRead, 1, eventHangup})
	if !c.host.Hears() {
		t.Error("the guest has gone deaf")
	}
}

// Clients whose connection stood before the interruption are served.
func TestInterruptKeepsArrivals(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	c := newCaller(t, Config{Listeners: []Listener{l}})
	conn, err := net.Dial("tcp", l.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.check(c.poll(sub{eventRead, 3, 0, 0}), event{0, success, eventRead, 1, 0}) // it stands
	c.host.Interrupt()
	c.check(c.poll(sub{eventRead, 3, 0, 0}), event{0, success, eventRead, 1, eventHangup})
	c.must("sock_accept", 3, 0, atResult)
	c.write(uint64(c.U32(atResult)), "bye")
	b := make([]byte, 3)
	if _, err := conn.Read(b); err != nil || string(b) != "bye" {
		t.Error(string(b), err)
	}
	c.want(einval, "sock_accept", 3, 0, atResult)
}

func TestInterruptStdin(t *testing.T) {
	r, w, _ := os.Pipe()
	defer r.Close()
	defer w.Close()
	c := newCaller(t, Config{Stdin: int(r.Fd()), Stdout: -1, Stderr: -1})
	if !c.host.Hears() {
		t.Error("a guest with an input does not hear")
	}
	interrupted(t, c, func() {
		if got, e := c.read(0, 10); got != "" || e != success {
			t.Errorf("read %q, %d", got, e)
		}
	})
	w.Write([]byte("rest"))
	c.check(c.poll(sub{eventRead, 0, 0, 0}), event{0, success, eventRead, 4, eventHangup})
	for _, want := range []string{"rest", "", ""} {
		if got, e := c.read(0, 10); got != want || e != success {
			t.Errorf("read %q, %d", got, e)
		}
	}
	c.must("fd_close", 0)
	if c.host.Hears() {
		t.Error("a guest without input hears")
	}
}

func TestInterruptPoll(t *testing.T) {
	c, fd, conn := connected(t)
	long := sub{eventClock, clockMonotonic, 1 << 62, 0}
	idle := sub{eventRead, uint32(fd), 0, 0}
	interrupted(t, c, func() {
		c.check(c.poll(sub{eventRead, 3, 0, 0}, idle, long), event{0, success, eventRead, 1, eventHangup})
	})
	c.poll(sub{eventClock, clockMonotonic, ms, 0}) // the bell may still ring
	interrupted(t, c, func() { c.check(c.poll(long), event{0, success, eventClock, 0, 0}) })
	interrupted(t, c, func() { c.check(c.poll(idle, long), event{1, success, eventClock, 0, 0}) })
	c.host.Interrupt() // wakes the next one that would sleep, once
	wasitest.Took(t, 0, func() { c.poll(long) })
	wasitest.Took(t, 19*time.Millisecond, func() { c.poll(sub{eventClock, clockMonotonic, 20 * ms, 0}) })
	interrupted(t, c, func() {
		if _, e := c.read(fd, 10); e != ecanceled {
			t.Error("blocked read:", e)
		}
	})
	wasitest.Took(t, 60*time.Millisecond, func() {
		go func() {
			time.Sleep(30 * time.Millisecond)
			c.host.Interrupt() // says nothing to a poll of connections only
			time.Sleep(30 * time.Millisecond)
			conn.Write([]byte("x"))
		}()
		c.check(c.poll(idle), event{0, success, eventRead, 1, 0})
	})
}

func TestHears(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if c := newCaller(t, Config{Stdin: int(null.Fd()), Stdout: -1, Stderr: -1}); c.host.Hears() {
		t.Error("/dev/null is heard")
	}
	c := newCaller(t, Config{})
	if c.host.Hears() {
		t.Error("nothing is heard")
	}
	c.host.Interrupt()
	c.host.Close()
	c.host.Interrupt() // too late, and harmless
}
