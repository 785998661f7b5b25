package wasitest

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long anything may take. It only bounds a failure: what would wait wrongly here
// would wait for hours.
const Patience = time.Minute

// Took runs f and checks that it took so long, at least.
func Took(t testing.TB, least time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if d := time.Since(start); d < least || d > Patience {
		t.Errorf("took %v, want %v at least", d, least)
	}
}

// Interrupted runs a call that blocks and interrupts it.
func Interrupted(t testing.TB, interrupt, call func()) {
	t.Helper()
	done := make(chan struct{})
	Took(t, 30*time.Millisecond, func() {
		go func() {
			defer close(done)
			time.Sleep(30 * time.Millisecond)
			interrupt()
		}()
		call()
	})
	<-done // the call may end before the interruption is over, which wakes it in several ways
}

// Listen makes a listener as the guest process gets it, and returns its address.
func Listen(t testing.TB, address string) (fd int, bound string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, false)
	return fd, l.Addr().String()
}

// OpenDir opens a directory as the guest process does.
func OpenDir(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
