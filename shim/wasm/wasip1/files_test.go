package wasip1

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReadWriteSeek(t *testing.T) {
	c := newCaller(t, Config{})
	fd := c.open("f", openCreate, rightsFile, 0)
	c.write(fd, "hello world")
	c.must("fd_tell", fd, atResult)
	if got := c.U64(atResult); got != 11 {
		t.Errorf("tell = %d", got)
	}
	c.must("fd_seek", fd, ^uint64(4), uint64(seekEnd), atResult) // -5
	if got, e := c.read(fd, 100); got != "world" || e != success {
		t.Errorf("read %q, errno %d", got, e)
	}
	if got, e := c.read(fd, 100); got != "" || e != success {
		t.Errorf("read at end %q, errno %d", got, e)
	}
	c.want(einval, "fd_seek", fd, ^uint64(0), uint64(seekSet), atResult)
	c.want(einval, "fd_seek", fd, 0, 3, atResult)
	c.want(ebadf, "fd_seek", 99, 0, 0, atResult)
}

func TestVectors(t *testing.T) {
	c := newCaller(t, Config{})
	fd := c.open("f", openCreate, rightsFile, 0)
	for i := range uint32(2000) { // more than the kernel takes at once, every second one empty
		c.Mem.WriteUint32Le(atData+8*i, atText)
		c.Mem.WriteUint32Le(atData+8*i+4, i%2)
	}
	c.Str(atText, "x")
	c.must("fd_write", fd, atData, 2000, atResult)
	if got := c.U32(atResult); got != 1000 {
		t.Errorf("wrote %d bytes", got)
	}
	c.must("fd_write", fd, atData, 0, atResult)
	c.Mem.WriteUint32Le(atIovecs, atData)
	c.Mem.WriteUint32Le(atIovecs+4, 3)
	c.Mem.WriteUint32Le(atIovecs+8, atData+100)
	c.Mem.WriteUint32Le(atIovecs+12, 4)
	c.must("fd_pread", fd, atIovecs, 2, 995, atResult)
	if got := c.U32(atResult); got != 5 || string(c.Bytes(atData+100, 2)) != "xx" {
		t.Errorf("read %d bytes", got)
	}
}

// Whatever a guest's pointers are, the host does not follow them out of the guest's memory.
func TestPointersOutside(t *testing.T) {
	c := newCaller(t, Config{})
	fd := c.open("f", openCreate, rightsFile, 0)
	const outside = 2 * 65536
	c.Iovec(8)
	c.want(efault, "fd_write", fd, atIovecs, 1, outside-3)
	c.want(efault, "fd_write", fd, outside-4, 1, atResult)
	c.want(efault, "fd_write", fd, atIovecs, 1<<29, atResult)
	c.want(efault, "fd_write", fd, atIovecs, 0xffffffff, atResult)
	c.Mem.WriteUint32Le(atIovecs, outside-4)
	c.want(efault, "fd_write", fd, atIovecs, 1, atResult)
	c.want(efault, "fd_read", fd, atIovecs, 1, atResult)
	c.want(efault, "fd_pread", fd, atIovecs, 1, 0, atResult)
	c.want(efault, "fd_pwrite", fd, atIovecs, 1, 0, atResult)
	c.want(efault, "path_create_directory", 3, outside-1, 2)
	c.want(efault, "path_open", 3, 0, atText, 1, 0, 0, 0, 0, outside)
	c.want(efault, "fd_fdstat_get", fd, outside-23)
	c.want(efault, "fd_filestat_get", fd, outside-63)
	c.want(efault, "fd_readdir", 3, outside-10, 100, 0, atResult)
	c.want(efault, "poll_oneoff", outside-40, atEvents, 1, atResult)
	c.want(efault, "poll_oneoff", atSubs, outside-31, 1, atResult)
	c.want(efault, "random_get", outside-1, 2)
	c.want(efault, "args_sizes_get", outside, 0)
	c.want(efault, "clock_time_get", 0, 0, outside-7)
	if len(c.host.table.open) != 5 {
		t.Errorf("a failed path_open left a descriptor: %d", len(c.host.table.open))
	}
}

func TestAppend(t *testing.T) {
	c := newCaller(t, Config{})
	fd := c.open("f", openCreate, rightsFile, flagAppend)
	c.write(fd, "aaaa")
	c.must("fd_seek", fd, 0, uint64(seekSet), atResult)
	c.write(fd, "bb")
	c.Mem.Write(atData, []byte("X"))
	p, n := c.Iovec(1)
	c.must("fd_pwrite", fd, p, n, 1, atResult) // at its offset, append or not
	c.write(fd, "c")                           // and append mode is still on
	c.must("fd_fdstat_set_flags", fd, 0)
	c.must("fd_seek", fd, 0, uint64(seekSet), atResult)
	c.write(fd, "Y")
	if got, _ := os.ReadFile(c.root + "/f"); string(got) != "YXaabbc" {
		t.Errorf("file is %q", got)
	}
}

func TestSyncFlags(t *testing.T) {
	c := newCaller(t, Config{})
	for _, flags := range []uint16{flagDsync, flagSync, flagRsync, flagSync | flagAppend} {
		fd := c.open("f", openCreate, rightsFile, flags)
		c.must("fd_fdstat_get", fd, atData)
		if got, _ := c.Mem.ReadUint16Le(atData + 2); got != flags {
			t.Errorf("flags %b, want %b", got, flags)
		}
		c.write(fd, "x")
		c.must("fd_close", fd)
	}
	fd := c.open("f", 0, rightsFile, 0)
	c.must("fd_fdstat_set_flags", fd, uint64(flagDsync))
	c.write(fd, "x")
	c.must("fd_fdstat_set_flags", fd, uint64(flagSync))
	c.write(fd, "x")
	c.must("fd_sync", fd)
	c.must("fd_datasync", fd)
	c.must("fd_sync", 3)
	c.want(einval, "fd_fdstat_set_flags", fd, 0x20)
	c.want(ebadf, "fd_sync", 50)
}

func TestSizeAllocateAdvise(t *testing.T) {
	c := newCaller(t, Config{})
	fd := c.open("f", openCreate, rightsFile, 0)
	c.must("fd_filestat_set_size", fd, 10)
	c.must("fd_allocate", fd, 5, 100)
	c.must("fd_filestat_get", fd, atData)
	if size := c.U64(atData + 32); size != 105 {
		t.Errorf("size %d", size)
	}
	c.want(einval, "fd_allocate", fd, 0, 0)
	c.want(einval, "fd_allocate", fd, 1<<63, 1)
	c.want(einval, "fd_filestat_set_size", fd, 1<<63)
	for advice := range uint64(6) {
		c.must("fd_advise", fd, 0, 0, advice)
	}
	c.want(einval, "fd_advise", fd, 0, 0, 6)
	c.want(einval, "fd_advise", fd, 1<<63, 0, 0)
	readOnly := c.open("f", 0, rightsFile&^rightFdWrite, 0)
	c.want(einval, "fd_filestat_set_size", readOnly, 1)
	c.want(ebadf, "fd_allocate", readOnly, 0, 1)
	p, n := c.Iovec(1)
	c.want(ebadf, "fd_write", readOnly, p, n, atResult)
}

func TestFilestat(t *testing.T) {
	c := newCaller(t, Config{})
	c.put("f", "12345")
	if err := os.Link(c.root+"/f", c.root+"/g"); err != nil {
		t.Fatal(err)
	}
	when := time.Date(2021, 2, 3, 4, 5, 6, 789, time.UTC)
	if err := os.Chtimes(c.root+"/f", when, when.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(c.root+"/f", &st); err != nil {
		t.Fatal(err)
	}
	p, n := c.Str(atText, "f")
	c.must("path_filestat_get", 3, 0, p, n, atData)
	if c.U64(atData) != uint64(st.Dev) || c.U64(atData+8) != st.Ino || c.Bytes(atData+16, 1)[0] != typeRegularFile ||
		c.U64(atData+24) != 2 || c.U64(atData+32) != 5 || c.U64(atData+40) != uint64(when.UnixNano()) ||
		c.U64(atData+48) != uint64(when.UnixNano())+1e9 {
		t.Errorf("filestat % x", c.Bytes(atData, sizeFilestat))
	}
	fd := c.open("f", 0, rightsFile, 0)
	c.must("fd_filestat_set_times", fd, 5, 7, uint64(timeAccess|timeModify))
	c.must("fd_filestat_get", fd, atData)
	if c.U64(atData+40) != 5 || c.U64(atData+48) != 7 {
		t.Errorf("times %d %d", c.U64(atData+40), c.U64(atData+48))
	}
	before := time.Now().Add(-time.Second)
	c.must("path_filestat_set_times", 3, 0, p, n, 1, 2, uint64(timeModifyNow))
	c.must("fd_filestat_get", fd, atData)
	if c.U64(atData+40) != 5 || c.U64(atData+48) < uint64(before.UnixNano()) {
		t.Errorf("times %d %d", c.U64(atData+40), c.U64(atData+48))
	}
	c.want(einval, "path_filestat_set_times", 3, 0, p, n, 1, 2, 0x10)
	c.want(einval, "fd_filestat_set_times", fd, 1, 2, uint64(timeAccess|timeAccessNow))
	c.want(eoverflow, "fd_filestat_set_times", fd, 1<<63, 2, uint64(timeAccess))
	c.must("fd_filestat_set_times", 3, 9, 9, uint64(timeAccess|timeModify))
	c.want(einval, "path_filestat_get", 3, 2, p, n, atData)
}

func TestOpenFlags(t *testing.T) {
	c := newCaller(t, Config{})
	c.put("f", "content")
	if err := os.Mkdir(c.root+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(c.root+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path   string
		oflags uint16
		base   rights
		flags  uint16
		want   Errno
	}{
		{"f", 0, rightFdRead, 0, success},
		{"f", openDirectory, 0, 0, enotdir},
		{"f/", 0, 0, 0, enotdir},
		{"d/", openCreate, 0, 0, eisdir},
		{"new/", openCreate, 0, 0, eisdir},
		{"f", openCreate | openExclusive, 0, 0, eexist},
		{"f", openExclusive, 0, 0, success},
		{"d", openCreate | openDirectory, 0, 0, einval},
		{"d", 0, rightFdWrite, 0, eisdir},
		{"d", 0, rightsDirectory, flagNonblock, success},
		{"d/../f", 0, rightFdRead, 0, success},
		{"d/./.", 0, 0, 0, success},
		{"missing", 0, 0, 0, enoent},
		{"missing/f", openCreate, 0, 0, enoent},
		{"f/x", openCreate, 0, 0, enotdir},
		{"", 0, 0, 0, enoent},
		{".", 0, 0, 0, success},
		{"..", 0, 0, 0, eperm},
		{"d/../../x", 0, 0, 0, eperm},
		{"/f", 0, 0, 0, eperm},
		{"f\x00", 0, 0, 0, einval},
		{strings.Repeat("a", 256), 0, 0, 0, enametoolong},
		{strings.Repeat("a/", 2048), 0, 0, 0, enametoolong},
		{"fifo", 0, rightFdRead, flagNonblock, success},
		{"f", 0x10, 0, 0, einval},
		{"f", 0, 0, 0x20, einval},
	} {
		for _, walks := range []bool{false, true} {
			c.host.system.Fallbacks.Walk = walks
			e, fd := c.tryOpen(3, test.path, lookupFollow, test.oflags, test.base, test.flags)
			if e != test.want {
				t.Errorf("open %.20q %b %x %b (walks %v) = %d, want %d", test.path, test.oflags, test.base, test.flags, walks, e, test.want)
			}
			if e == success {
				c.must("fd_close", fd)
			}
		}
	}
	c.host.system.Fallbacks.Walk = false
	c.must("fd_close", c.open("f", openTruncate, 0, 0))
	if got, _ := os.ReadFile(c.root + "/f"); len(got) != 0 {
		t.Errorf("not truncated: %q", got)
	}
	p, n := c.Str(atText, "f")
	c.want(einval, "path_open", 3, 2, p, n, 0, 0, 0, 0, atResult)
}
