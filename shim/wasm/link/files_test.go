package link

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is a link.
func pair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

func open(t *testing.T, n int) []*os.File {
	t.Helper()
	dir := t.TempDir()
	var files []*os.File
	for i := range n {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files
}

func TestFilesArriveInOrderBetweenFrames(t *testing.T) {
	for _, n := range []int{0, 1, batch, 2*batch + 3} { // more than the kernel takes at once
		ours, theirs := pair(t)
		files := open(t, n)
		sent := make(chan error, 1)
		go func() {
			err := Send(ours, Message{Kind: Start})
			if err == nil {
				err = SendFiles(ours, files)
			}
			if err == nil {
				err = Send(ours, Message{Kind: Interrupt})
			}
			sent <- err
		}()
		if m, err := Receive(theirs); err != nil || m.Kind != Start {
			t.Fatalf("%d files: first message %+v, %v", n, m, err)
		}
		fds, err := ReceiveFiles(theirs, n)
		if err != nil || len(fds) != n {
			t.Fatalf("%d files: received %d, %v", n, len(fds), err)
		}
		for i, fd := range fds {
			var got unix.Stat_t
			if err := unix.Fstat(fd, &got); err != nil {
				t.Fatal(err)
			}
			info, err := files[i].Stat()
			if err != nil {
				t.Fatal(err)
			}
			mine := os.NewFile(uintptr(fd), "received")
			if theirs, err := mine.Stat(); err != nil || !os.SameFile(info, theirs) {
				t.Errorf("%d files: number %d is another, %v", n, i, err)
			}
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%d files: number %d stays open on exec", n, i)
			}
			mine.Close()
		}
		if m, err := Receive(theirs); err != nil || m.Kind != Interrupt {
			t.Errorf("%d files: last message %+v, %v", n, m, err)
		}
		if err := <-sent; err != nil {
			t.Errorf("%d files: send: %v", n, err)
		}
	}
}

// descriptors counts this process's.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestFilesThatAreNotAsAnnouncedAreAnError(t *testing.T) {
	for name, c := range map[string]struct {
		sent, announced int
		plain           bool // a byte without files instead of the rest
	}{
		"fewer, then the end": {sent: 1, announced: 2},
		"fewer, then a byte":  {sent: 1, announced: 2, plain: true},
		"more":                {sent: 3, announced: 2},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			files := open(t, c.sent)
			if err := SendFiles(ours, files); err != nil {
				t.Fatal(err)
			}
			if c.plain {
				if _, err := ours.Write([]byte{0}); err != nil {
					t.Fatal(err)
				}
			}
			ours.Close()
			before := descriptors(t)
			if fds, err := ReceiveFiles(theirs, c.announced); err == nil {
				t.Errorf("received %v", fds)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}
