// Package pty opens pseudo terminals for tests.
package pty

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Open opens a pseudo terminal and returns the end that shows and types, and the program's. Both
// are closed at the end of the test at the latest.
func Open(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	var peer uintptr
	control(t, master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		var errno unix.Errno
		peer, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return errno
		}
		return nil
	})
	slave = os.NewFile(peer, "pts")
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// Resize sets a terminal's size in characters.
func Resize(t testing.TB, f *os.File, width, height uint16) {
	t.Helper()
	control(t, f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	})
}

// Mode is the mode of a terminal, as it was set last.
func Mode(t testing.TB, f *os.File) (mode unix.Termios) {
	t.Helper()
	control(t, f, func(fd int) error {
		m, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			mode = *m
		}
		return err
	})
	return mode
}

// control calls f with the file's descriptor, which stays as it is.
func control(t testing.TB, file *os.File, f func(fd int) error) {
	t.Helper()
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ferr error
	if err := raw.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		t.Fatal(err)
	}
	if ferr != nil {
		t.Fatalf("%s: %v", file.Name(), ferr)
	}
}
