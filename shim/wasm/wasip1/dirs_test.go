package wasip1

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"
)

type entry struct {
	name string
	next uint64
	kind uint8
}

// list reads a directory with buffers of size bytes, starting at cookie.
func (c *caller) list(fd, cookie uint64, size uint32) []entry {
	c.Helper()
	var all []entry
	for {
		c.must("fd_readdir", fd, atData, uint64(size), cookie, atResult)
		used := c.U32(atResult)
		b := c.Bytes(atData, used)
		got := 0
		for len(b) >= sizeDirent {
			n := binary.LittleEndian.Uint32(b[16:])
			if uint32(len(b)) < sizeDirent+n {
				break
			}
			all = append(all, entry{string(b[sizeDirent:][:n]), binary.LittleEndian.Uint64(b), b[20]})
			cookie = all[len(all)-1].next
			b = b[sizeDirent+n:]
			got++
		}
		if used < size {
			return all
		}
		if got == 0 {
			c.Fatalf("no whole entry in %d bytes", size)
		}
	}
}

func names(list []entry) []string {
	var all []string
	for _, e := range list {
		all = append(all, e.name)
	}
	slices.Sort(all)
	return all
}

func TestReaddir(t *testing.T) {
	c := newCaller(t, Config{})
	c.put("file", "")
	os.Mkdir(c.root+"/dir", 0o755)
	os.Symlink("file", c.root+"/link")
	types := map[string]uint8{
		".": typeDirectory, "..": typeDirectory, "dir": typeDirectory, "file": typeRegularFile, "link": typeSymbolicLink,
	}
	list := c.list(3, 0, 4096)
	if got := names(list); len(got) != len(types) {
		t.Errorf("entries %q", got)
	}
	for i, e := range list {
		if types[e.name] != e.kind {
			t.Errorf("%q has type %d", e.name, e.kind)
		}
		// Any cookie leads to the entries behind it, in any order of asking.
		if got := c.list(3, e.next, 4096); len(got) != len(list)-i-1 {
			t.Errorf("behind %q are %d entries, want %d", e.name, len(got), len(list)-i-1)
		}
	}
	// What lies above a preopen is not told.
	c.must("fd_readdir", 3, atData, 4096, 0, atResult)
	inodes := map[string]uint64{}
	for b := c.Bytes(atData, c.U32(atResult)); len(b) > 0; {
		n := binary.LittleEndian.Uint32(b[16:])
		inodes[string(b[sizeDirent:][:n])] = binary.LittleEndian.Uint64(b[8:])
		b = b[sizeDirent+n:]
	}
	if inodes["."] == 0 || inodes["."] != inodes[".."] {
		t.Errorf("inodes %v", inodes)
	}
	c.put("more", "") // from the start again, the directory as it is now
	if got := names(c.list(3, 0, 4096)); len(got) != 6 {
		t.Errorf("entries %q", got)
	}
	c.must("fd_readdir", 3, atData, 0, 0, atResult)
	c.must("fd_readdir", 3, atData, 10, 0, atResult)
	if got := c.U32(atResult); got != 10 {
		t.Errorf("used %d of a short buffer", got)
	}
	c.want(einval, "fd_readdir", 3, atData, 10, 1<<63, atResult)
	c.want(enotdir, "fd_readdir", c.open("file", 0, rightsFile, 0), atData, 10, 0, atResult)
}

func TestReaddirBig(t *testing.T) {
	c := newCaller(t, Config{})
	want := []string{".", ".."}
	for i := range 3000 {
		n := fmt.Sprintf("some-file-with-a-name-%04d", i)
		c.put(n, "")
		want = append(want, n)
	}
	for _, size := range []uint32{100, 256, 4096, 40000} {
		if got := names(c.list(3, 0, size)); !slices.Equal(got, want) {
			t.Errorf("with buffers of %d bytes: %d entries", size, len(got))
		}
	}
	// Removing while reading, as rm -r does.
	cookie := uint64(0)
	removed := 0
	for {
		c.must("fd_readdir", 3, atData, 1000, cookie, atResult)
		used := c.U32(atResult)
		b := slices.Clone(c.Bytes(atData, used))
		for len(b) >= sizeDirent {
			n := binary.LittleEndian.Uint32(b[16:])
			if uint32(len(b)) < sizeDirent+n {
				break
			}
			name := string(b[sizeDirent:][:n])
			cookie = binary.LittleEndian.Uint64(b)
			b = b[sizeDirent+n:]
			if name != "." && name != ".." {
				p, l := c.Str(atText, name)
				c.must("path_unlink_file", 3, p, l)
				removed++
			}
		}
		if used < 1000 {
			break
		}
	}
	if removed != 3000 {
		t.Errorf("removed %d", removed)
	}
}
