package wasip1

import (
	"os"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

func TestDescriptorsAreTheLowestFree(t *testing.T) {
	c := newCaller(t, Config{})
	for want := uint64(4); want < 8; want++ {
		if fd := c.open("f", openCreate, rightsFile, 0); fd != want {
			t.Errorf("descriptor %d, want %d", fd, want)
		}
	}
	c.must("fd_close", 5)
	c.must("fd_close", 0)
	for _, want := range []uint64{0, 5, 8} {
		if fd := c.open("f", 0, rightsFile, 0); fd != want {
			t.Errorf("descriptor %d, want %d", fd, want)
		}
	}
	c.want(ebadf, "fd_close", 77)
	c.want(ebadf, "fd_close", 0xffffffff)
}

func TestRenumber(t *testing.T) {
	c := newCaller(t, Config{})
	a, b := c.open("a", openCreate, rightsFile, 0), c.open("b", openCreate, rightsFile, 0)
	c.must("fd_renumber", a, b)
	c.want(ebadf, "fd_close", a)
	c.write(b, "into a")
	if got, _ := os.ReadFile(c.root + "/a"); string(got) != "into a" {
		t.Errorf("a is %q", got)
	}
	c.want(ebadf, "fd_renumber", b, a) // no such target
	c.want(ebadf, "fd_renumber", a, b)
	c.must("fd_renumber", b, b)

	// A preopen moves with its name, over a standard stream too.
	c.must("fd_renumber", 3, 1)
	c.want(ebadf, "fd_prestat_get", 3, atData)
	c.must("fd_prestat_get", 1, atData)
	c.must("fd_renumber", b, 1)
	c.want(ebadf, "fd_prestat_get", 1, atData)
	c.write(1, "!")
}

func TestPrestat(t *testing.T) {
	dir := t.TempDir()
	c := newCaller(t, Config{
		Preopens:  []Preopen{{FD: wasitest.OpenDir(t, dir), Name: "/some/dir"}, {FD: wasitest.OpenDir(t, dir), Name: "/", ReadOnly: true}},
		Listeners: []Listener{listen(t, "127.0.0.1:0"), listen(t, "[::1]:0")},
	})
	for fd := range uint64(3) {
		c.want(ebadf, "fd_prestat_get", fd, atData)
	}
	for fd := uint64(3); fd < 5; fd++ {
		c.must("fd_prestat_get", fd, atData)
		if c.U32(atData) == prestatDirectory {
			t.Errorf("descriptor %d is a directory", fd)
		}
		c.want(enotdir, "fd_prestat_dir_name", fd, atData, 100)
		c.must("fd_fdstat_get", fd, atData)
		if got := c.Bytes(atData, 1)[0]; got != typeSocketStream {
			t.Errorf("type %d", got)
		}
	}
	c.must("fd_prestat_get", 5, atData)
	if c.U32(atData) != prestatDirectory || c.U32(atData+4) != 9 {
		t.Errorf("prestat %d %d", c.U32(atData), c.U32(atData+4))
	}
	c.want(enametoolong, "fd_prestat_dir_name", 5, atData, 8)
	c.must("fd_prestat_dir_name", 5, atData, 20)
	if got := string(c.Bytes(atData, 9)); got != "/some/dir" {
		t.Errorf("name %q", got)
	}
	c.want(ebadf, "fd_prestat_get", 7, atData)
}

func TestReadOnlyPreopen(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/f", []byte("x"), 0o644)
	os.Mkdir(dir+"/d", 0o755)
	c := newCaller(t, Config{Preopens: []Preopen{{FD: wasitest.OpenDir(t, dir), Name: "/", ReadOnly: true}}})
	for _, test := range []struct {
		path   string
		oflags uint16
		base   rights
		want   Errno
	}{
		{"f", 0, rightsFile &^ rightFdWrite, success},
		{"f", openCreate, rightFdRead, success},
		{"f", openCreate | openExclusive, rightFdRead, eexist},
		{"g", openCreate, rightFdRead, erofs},
		{"g", 0, rightFdRead, enoent},
		{"f", 0, rightFdWrite, erofs},
		{"f", openTruncate, 0, erofs},
	} {
		if e, _ := c.tryOpen(3, test.path, 0, test.oflags, test.base, 0); e != test.want {
			t.Errorf("open %q %b: %d, want %d", test.path, test.oflags, e, test.want)
		}
	}
	e, d := c.tryOpen(3, "d", 0, openDirectory, rightsDirectory, 0)
	if e != success {
		t.Fatal(e)
	}
	p, n := c.Str(atText, "new")
	f, m := c.Str(atText2, "f")
	for _, dir := range []uint64{3, d} {
		c.want(erofs, "path_create_directory", dir, p, n)
		c.want(erofs, "path_symlink", f, m, dir, p, n)
		c.want(erofs, "fd_filestat_set_times", dir, 1, 1, uint64(timeModify))
	}
	c.want(erofs, "path_unlink_file", 3, f, m)
	c.want(erofs, "path_remove_directory", 3, f, m)
	c.want(erofs, "path_rename", 3, f, m, 3, p, n)
	c.want(erofs, "path_link", 3, 0, f, m, 3, p, n)
	c.want(erofs, "path_filestat_set_times", 3, 0, f, m, 1, 1, uint64(timeModify))
}

func TestRights(t *testing.T) {
	c := newCaller(t, Config{})
	c.put("f", "x")
	fd := c.open("f", 0, rightsAll, 0)
	base, inheriting := c.rights(fd)
	if base != rightsFile || inheriting != 0 {
		t.Errorf("a file's rights %x %x", base, inheriting)
	}
	base, inheriting = c.rights(3)
	if base != rightsDirectory || inheriting != rightsDirectory|rightsFile {
		t.Errorf("a preopen's rights %x %x", base, inheriting)
	}
	c.want(enotcapable, "fd_fdstat_set_rights", fd, uint64(base|rightPathOpen), 0)
	c.must("fd_fdstat_set_rights", fd, uint64(rightFdRead|rightFdTell), 0)
	c.must("fd_tell", fd, atResult)
	c.must("fd_seek", fd, 0, uint64(seekCurrent), atResult)
	c.want(enotcapable, "fd_seek", fd, 1, uint64(seekCurrent), atResult)
	c.want(enotcapable, "fd_filestat_get", fd, atData)
	c.want(enotcapable, "fd_advise", fd, 0, 0, 0)
	p, n := c.Iovec(1)
	c.want(ebadf, "fd_write", fd, p, n, atResult)
	c.want(enotcapable, "fd_pread", fd, p, n, 0, atResult)

	// A directory passes on no more than it may. What a file has no use for may be asked for.
	c.must("fd_fdstat_set_rights", 3, uint64(rightPathOpen), uint64(rightFdRead|rightFdReaddir))
	if e, _ := c.tryOpen(3, "f", 0, 0, rightFdRead|rightPathOpen, 0); e != success {
		t.Errorf("open for reading: %d", e)
	}
	if e, _ := c.tryOpen(3, ".", 0, 0, rightFdReaddir, 0); e != enotcapable {
		t.Errorf("open a directory that may pass on more: %d", e)
	}
	for _, test := range []struct {
		oflags, flags uint16
		base          rights
	}{{0, 0, rightFdWrite}, {openCreate, 0, rightFdRead}, {openTruncate, 0, rightFdRead}, {0, flagSync, rightFdRead}} {
		if e, _ := c.tryOpen(3, "f", 0, test.oflags, test.base, test.flags); e != enotcapable {
			t.Errorf("open %+v: %d", test, e)
		}
	}
	q, m := c.Str(atText, "x")
	c.want(enotcapable, "path_create_directory", 3, q, m)
	c.want(enotcapable, "fd_readdir", 3, atData, 10, 0, atResult)
}

func (c *caller) rights(fd uint64) (rights, rights) {
	c.must("fd_fdstat_get", fd, atData)
	return rights(c.U64(atData + 8)), rights(c.U64(atData + 16))
}

// What a file cannot do is told with the error that POSIX programs know.
func TestErrorsByType(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	dir := t.TempDir()
	c := newCaller(t, Config{
		Stdin: int(r.Fd()), Stdout: int(w.Fd()), Stderr: -1,
		Listeners: []Listener{listen(t, "127.0.0.1:0")},
		Preopens:  []Preopen{{FD: wasitest.OpenDir(t, dir), Name: "/"}},
	})
	p, n := c.Iovec(1)
	q, m := c.Str(atText, "x")
	for fd := range uint64(3) {
		c.want(espipe, "fd_seek", fd, 1, 0, atResult)
		c.want(espipe, "fd_tell", fd, atResult)
		c.want(enotsock, "sock_shutdown", fd, 1)
		c.want(enotsock, "sock_accept", fd, 0, atResult)
		c.want(enotsock, "sock_recv", fd, p, n, 0, atResult, atResult)
		c.want(enotsock, "sock_send", fd, p, n, 0, atResult)
		c.want(enotdir, "path_create_directory", fd, q, m)
		c.want(enotdir, "fd_readdir", fd, atData, 10, 0, atResult)
	}
	c.want(ebadf, "fd_write", 0, p, n, atResult)
	c.want(ebadf, "fd_read", 1, p, n, atResult)
	c.want(espipe, "fd_pread", 0, p, n, 0, atResult)
	c.want(espipe, "fd_seek", 3, 1, 0, atResult)
	c.want(enotconn, "fd_read", 3, p, n, atResult)
	c.want(enotdir, "fd_readdir", 3, atData, 10, 0, atResult)
	c.want(eisdir, "fd_read", 4, p, n, atResult)
	c.want(eisdir, "fd_write", 4, p, n, atResult)
	c.want(eisdir, "fd_tell", 4, atResult)
	c.want(eisdir, "fd_allocate", 4, 0, 1)
	c.want(enotsock, "sock_shutdown", 4, 1)
	c.want(ebadf, "sock_shutdown", 9, 1)
	c.want(einval, "sock_shutdown", 3, 0)
	c.want(einval, "sock_shutdown", 3, 4)
}

func TestNewRefuses(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	dir := wasitest.OpenDir(t, t.TempDir())
	defer unix.Close(dir)
	l := listen(t, "127.0.0.1:0")
	defer unix.Close(l.FD)
	before := openFiles(t)
	for name, config := range map[string]Config{
		"zero byte":   {Args: []string{"a\x00b"}},
		"no listener": {Listeners: []Listener{l, {FD: int(r.Fd())}}},
		"no dir":      {Preopens: []Preopen{{FD: dir, Name: "/"}, {FD: int(r.Fd()), Name: "/x"}}},
		"no name":     {Preopens: []Preopen{{FD: dir}}},
		"no stdin":    {Stdin: 1 << 20},
	} {
		if h, err := New(config); err == nil {
			h.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

// What Announce refuses ends with the Host, and so does all that it was given and had before.
func TestAnnounceRefuses(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	before := openFiles(t)
	dir := wasitest.OpenDir(t, t.TempDir())
	h, err := New(Config{Stdin: -1, Stdout: -1, Stderr: -1, Preopens: []Preopen{{FD: dir, Name: "/"}}})
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	given := []Listener{listen(t, "127.0.0.1:0"), {FD: pipe, Name: "no listener"}, listen(t, "127.0.0.1:0")}
	if err := h.Announce(given, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("announced a pipe: %v, want invalid argument", err)
	}
	h.Close()
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// The three standard streams may be one descriptor, as with a terminal.
func TestSharedStdio(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	before := openFiles(t)
	c := newCaller(t, Config{Stdin: pair[0], Stdout: pair[0], Stderr: pair[0]})
	c.write(1, "out")
	c.write(2, "err")
	subscribe(c, sub{eventRead, 0, 0, 0}, sub{eventWrite, 1, 0, 0}, sub{eventWrite, 2, 0, 0})
	c.must("poll_oneoff", atSubs, atEvents, 3, atResult)
	if n := c.U32(atResult); n != 2 {
		t.Errorf("%d events", n)
	}
	if flags, _ := unix.FcntlInt(uintptr(pair[0]), unix.F_GETFL, 0); flags&unix.O_NONBLOCK != 0 {
		t.Error("the shared open file was made non-blocking")
	}
	c.host.Close()
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
	if _, err := unix.FcntlInt(uintptr(pair[0]), unix.F_GETFL, 0); err != nil {
		t.Error("a standard stream was closed:", err)
	}
	unix.Close(pair[0])
}
