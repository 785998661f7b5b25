package wasi

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// newSystem makes a System and a preopened "/" of it.
func newSystem(t *testing.T) (*System, *Dir, string) {
	t.Helper()
	s := New()
	path := t.TempDir()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := s.Preopen(Preopen{FD: fd, Name: "/"})
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close(); s.Close() })
	return s, dir, path
}

func one(p []byte) Buffers { return Buffers{}.Add(p) }

// The operations need no ABI: what one of a later version does, in values of Go.
func TestFilesWithoutABI(t *testing.T) {
	_, dir, path := newSystem(t)
	if err := dir.Mkdir("d"); err != nil {
		t.Fatal(err)
	}
	f, err := dir.Open("d/f", OpenOptions{Read: true, Write: true, Create: true, Flags: Append})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write(Buffers{}.Add([]byte("hello ")).Add(nil).Add([]byte("world"))); n != 11 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if n, err := f.WriteAt(one([]byte("J")), 0); n != 1 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	out := make([]byte, 20)
	if n, err := f.ReadAt(one(out), 0); string(out[:n]) != "Jello world" || err != nil {
		t.Errorf("read %q, %v", out[:n], err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := dir.Symlink("d/f", "link"); err != nil {
		t.Error(err)
	}
	if err := dir.Rename("d", dir, "e"); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := dir.StatAt("link", false, &st); err != nil || TypeOf(&st) != TypeSymbolicLink {
		t.Errorf("type %d, %v", TypeOf(&st), err)
	}
	if err := dir.StatAt("link", true, &st); err != unix.ENOENT {
		t.Error("a link to what has been renamed:", err)
	}
	var names []string
	list, err := dir.List(0)
	for err == nil {
		var entry Entry
		var found bool
		if entry, found, err = list.Entry(); !found {
			break
		}
		names = append(names, fmt.Sprint(string(entry.Name), " ", entry.Type))
		list.Advance()
	}
	slices.Sort(names)
	want := []string{fmt.Sprint(". ", TypeDirectory), fmt.Sprint(".. ", TypeDirectory), fmt.Sprint("e ", TypeDirectory), fmt.Sprint("link ", TypeSymbolicLink)}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("entries %q, %v", names, err)
	}
	if _, err := dir.Open("../x", OpenOptions{Read: true, Follow: true}); err != unix.EPERM {
		t.Error("a path that leaves the directory:", err)
	}
	if content, err := os.ReadFile(path + "/e/f"); string(content) != "Jello world" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := f.AsSocket(); err != unix.ENOTSOCK {
		t.Error("a file as a socket:", err)
	}
	if _, err := f.AsDir(); err != unix.ENOTDIR {
		t.Error("a file as a directory:", err)
	}
}

func TestSocketsWithoutABI(t *testing.T) {
	s, _, _ := newSystem(t)
	l, err := s.Socket(unix.AF_INET, unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Bind(netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	if err := l.Listen(1); err != nil {
		t.Fatal(err)
	}
	at, err := l.LocalAddr()
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.Write([]byte("hello"))
	subs := []Subscription{{Due: Forever}, {File: &l.File}, {Err: unix.EBADF}}
	if n, err := s.Poll(subs); n < 1 || err != nil || subs[0].Ready || !subs[2].Ready {
		t.Errorf("%d are ready, %v: %+v", n, err, subs)
	}
	conn, err := l.Accept(0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out := make([]byte, 20)
	if n, truncated, err := conn.Receive(one(out), 0); string(out[:n]) != "hello" || truncated || err != nil {
		t.Errorf("received %q, %v", out[:n], err)
	}
	if !s.Hears() {
		t.Error("a guest with a listener does not hear")
	}
	s.Interrupt()
	if _, err := l.Accept(0); err != unix.EINVAL {
		t.Error("accept after Interrupt:", err)
	}
	subs = []Subscription{{Due: Forever}, {File: &conn.File}}
	if n, err := s.Poll(subs); n != 1 || err != nil || !subs[0].Ready {
		t.Errorf("%d are ready, %v: %+v", n, err, subs)
	}
}
