package wasm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// notesBench is a cache with a folder of files that are as old as a note wants them.
type notesBench struct {
	t    *testing.T
	node Node
	dir  string
}

func newNotesBench(t *testing.T) *notesBench {
	t.Helper()
	b := &notesBench{t: t, node: Node{Cache: t.TempDir()}, dir: t.TempDir()}
	f, err := os.Open(b.write("first", 0))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.settle("first")
	if id, ok := identify(f); !ok {
		t.Skipf("this file system's files have no notes: %+v", id)
	}
	return b
}

// fileOf is what differs with the number, and is as long as a file must be for a note.
func fileOf(number int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%16d", number), worthNote/16)
}

func (b *notesBench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *notesBench) write(name string, number int) string {
	b.t.Helper()
	path := b.path(name)
	if err := os.WriteFile(path, fileOf(number), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// settle waits until the files are older than settled.
func (b *notesBench) settle(names ...string) {
	b.t.Helper()
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Stat(b.path(name), &st); err != nil {
			b.t.Fatal(err)
		}
		time.Sleep(time.Until(time.Unix(0, st.Ctim.Nano()).Add(settled + 10*time.Millisecond)))
	}
}

func (b *notesBench) open(name string) *os.File {
	b.t.Helper()
	f, err := os.Open(b.path(name))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { f.Close() })
	return f
}

// noted says whether a file's digest comes from a note.
func (b *notesBench) noted(name string) bool {
	b.t.Helper()
	id, _ := identify(b.open(name))
	for _, h := range b.node.hashed() {
		if h.identity == id {
			return true
		}
	}
	return false
}

// note has a settled file hashed, so that it is noted.
func (b *notesBench) note(name string) {
	b.t.Helper()
	if b.right(name); !b.noted(name) {
		b.t.Fatalf("%s has no note", name)
	}
}

// right checks that a file's digest is that of its content, or its user is to hash it.
func (b *notesBench) right(name string) digest.Digest {
	b.t.Helper()
	data, err := os.ReadFile(b.path(name))
	if err != nil {
		b.t.Fatal(err)
	}
	got := b.node.digest(b.open(name))
	if want := digest.FromBytes(data); got != "" && got != want {
		b.t.Errorf("%s: digest %s, want %s", name, got, want)
	}
	return got
}

// replaceNotes writes the notes as somebody else would.
func (b *notesBench) replaceNotes(change func([]hashed)) {
	b.t.Helper()
	notes := b.node.hashed()
	change(notes)
	data, err := json.Marshal(notes)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.node.Cache, hashedName), data, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// times puts back the times that a program can set.
func (b *notesBench) times(path string, at unix.Timespec) {
	b.t.Helper()
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, 0); err != nil {
		b.t.Fatal(err)
	}
}

// mapped maps a file for writing, and closes it.
func (b *notesBench) mapped(path string) []byte {
	b.t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, worthNote, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		b.t.Fatal(err)
	}
	return memory
}

// However a file that has a note is changed, its digest is that of what it has now.
func TestDigestOfAChangedFile(t *testing.T) {
	b := newNotesBench(t)
	changes := map[string]func(name string) error{
		"not": func(string) error { return nil },
		"replaced by rename, with its times": func(name string) error {
			var st unix.Stat_t
			if err := unix.Stat(b.path(name), &st); err != nil {
				return err
			}
			other := b.write("other", 1)
			b.times(other, st.Mtim)
			return os.Rename(other, b.path(name))
		},
		"deleted and made again": func(name string) error {
			if err := os.Remove(b.path(name)); err != nil {
				return err
			}
			b.write(name, 2)
			return nil
		},
		"written in place, its time put back": func(name string) error {
			var st unix.Stat_t
			if err := unix.Stat(b.path(name), &st); err != nil {
				return err
			}
			f, err := os.OpenFile(b.path(name), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("x"), worthNote/2)
			b.times(b.path(name), st.Mtim)
			return err
		},
		"written through a mapping": func(name string) error {
			memory := b.mapped(b.path(name))
			b.right(name) // the mapping alone changes nothing
			for i := range memory[:3] {
				memory[i] = 'x'
				b.right(name)
			}
			return unix.Munmap(memory)
		},
		"written by another name of it": func(name string) error {
			if err := os.Link(b.path(name), b.path("link")); err != nil {
				return err
			}
			b.right("link")
			b.write("link", 3)
			return nil
		},
		"cut and made longer": func(name string) error {
			if err := os.Truncate(b.path(name), worthNote/2); err != nil {
				return err
			}
			return os.Truncate(b.path(name), worthNote)
		},
		"changed places with another": func(name string) error {
			return unix.Renameat2(unix.AT_FDCWD, b.path(name), unix.AT_FDCWD, b.path("second"), unix.RENAME_EXCHANGE)
		},
		"a link to another": func(name string) error {
			if err := os.Remove(b.path(name)); err != nil {
				return err
			}
			return os.Symlink("third", b.path(name))
		},
	}
	b.write("second", 4)
	b.write("third", 5)
	number := 10
	for name := range changes {
		b.write(name, number)
		number++
	}
	for name := range changes {
		b.settle(name, "second", "third")
		b.note(name)
	}
	b.note("second")
	b.note("third")
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			b := &notesBench{t: t, node: b.node, dir: b.dir}
			b.note(name)
			if err := change(name); err != nil {
				t.Fatal(err)
			}
			b.right(name)
			b.right(name)
			if name == "not" && b.right(name) == "" {
				t.Error("it was to be hashed")
			}
		})
	}
}

// A file gets no note where a later change might not show.
func TestFilesWithoutNote(t *testing.T) {
	b := newNotesBench(t)
	without := func(name, why string) {
		t.Helper()
		if b.right(name); b.noted(name) {
			t.Errorf("it has a note: %s", why)
		}
	}
	b.write("young", 1)
	without("young", "it was written just now")
	b.settle("young")
	b.note("young")

	b.write("open", 2)
	f, err := os.OpenFile(b.path("open"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.settle("open")
	without("open", "it is open for writing")
	f.Close()
	b.note("open")

	memory := b.mapped(b.write("mapped", 3))
	memory[0] = 'a'
	b.settle("mapped")
	without("mapped", "its page may be written again without a change of its time")
	for letter := range byte(26) {
		memory[0] = 'a' + letter
		b.right("mapped")
	}
	if err := unix.Munmap(memory); err != nil {
		t.Fatal(err)
	}
	b.settle("mapped")
	b.note("mapped")

	if err := os.Truncate(b.write("small", 4), worthNote-1); err != nil {
		t.Fatal(err)
	}
	b.settle("small")
	without("small", "it is hashed quickly")
}

// On tmpfs what is written through a mapping changes no time once a page was read: files there have
// no notes.
func TestDigestOnTmpfs(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "sunaba-hashed-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	b := &notesBench{t: t, node: Node{Cache: t.TempDir()}, dir: dir}
	b.write("file", 1)
	b.settle("file")
	b.right("file")
	memory := b.mapped(b.path("file"))
	defer unix.Munmap(memory)
	for i, letter := range memory[:2] {
		memory[i] = letter + 1
		if got := b.right("file"); got != "" {
			t.Errorf("digest %s, want none", got)
		}
	}
}

func TestIdentityThatTells(t *testing.T) {
	for _, c := range []struct {
		name  string
		id    identity
		on    uint32
		tells bool
	}{
		{"ext4", identity{Boot: "a", Changed: 1_700_000_000_123_456_789}, unix.EXT4_SUPER_MAGIC, true},
		{"XFS", identity{Boot: "a", Changed: 1_700_000_000_000_000_001}, unix.XFS_SUPER_MAGIC, true},
		{"Btrfs", identity{Boot: "a", Changed: 1_700_000_000_000_000_001}, unix.BTRFS_SUPER_MAGIC, true},
		{"whole seconds", identity{Boot: "a", Changed: 1_700_000_000_000_000_000}, unix.EXT4_SUPER_MAGIC, false},
		{"no start of the machine", identity{Changed: 1_700_000_000_123_456_789}, unix.EXT4_SUPER_MAGIC, false},
		{"overlayfs", identity{Boot: "a", Changed: 1_700_000_000_123_456_789}, unix.OVERLAYFS_SUPER_MAGIC, false},
		{"tmpfs", identity{Boot: "a", Changed: 1_700_000_000_123_456_789}, unix.TMPFS_MAGIC, false},
		{"NFS", identity{Boot: "a", Changed: 1_700_000_000_123_456_789}, unix.NFS_SUPER_MAGIC, false},
		{"FAT", identity{Boot: "a", Changed: 1_700_000_000_010_000_000}, unix.MSDOS_SUPER_MAGIC, false},
	} {
		if c.id.tells(c.on) != c.tells {
			t.Errorf("%s: want %v", c.name, c.tells)
		}
	}
}

// Notes that somebody else may have written, that are of another start of the machine or are
// garbled do not count.
func TestNotesThatDoNotCount(t *testing.T) {
	b := newNotesBench(t)
	b.note("first")
	file := filepath.Join(b.node.Cache, hashedName)
	lie := digest.FromString("something else")
	b.replaceNotes(func(all []hashed) { all[0].Digest = lie })
	if got := b.node.digest(b.open("first")); got != lie {
		t.Fatalf("digest %s, want that of the note", got)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"group may write notes":  func() error { return os.Chmod(file, 0o620) },
		"others may write notes": func() error { return os.Chmod(file, 0o602) },
		"another's notes":        func() error { return os.Chown(file, 1234, -1) },
		"another's folder":       func() error { return os.Chown(b.node.Cache, 1234, -1) },
		"others may write":       func() error { return os.Chmod(b.node.Cache, 0o777) },
		"a link": func() error {
			if err := os.Rename(file, file+".other"); err != nil {
				return err
			}
			return os.Symlink(file+".other", file)
		},
		"garbled": func() error { return os.WriteFile(file, good[:len(good)-1], 0o600) },
		"no digest": func() error {
			return os.WriteFile(file, bytes.ReplaceAll(good, []byte(lie), []byte("sha256:12")), 0o600)
		},
		"another start": func() error {
			b.replaceNotes(func(all []hashed) { all[0].Boot = "another" })
			return nil
		},
		"another device": func() error {
			b.replaceNotes(func(all []hashed) { all[0].Device++ })
			return nil
		},
		"another file": func() error {
			b.replaceNotes(func(all []hashed) { all[0].Inode++ })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			b.right("first")
			err := os.Remove(file)
			for _, err := range []error{err, os.Chown(b.node.Cache, 0, -1), os.Chmod(b.node.Cache, 0o755), os.WriteFile(file, good, 0o600)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := b.node.digest(b.open("first")); got != lie {
				t.Fatalf("digest %s, want that of the note that counts", got)
			}
		})
	}
}

// The notes do not grow without bound, nor hold two of one file.
func TestNotesAreFew(t *testing.T) {
	b := newNotesBench(t)
	b.note("first")
	b.replaceNotes(func(all []hashed) {
		all[0].Size++ // as it was
	})
	b.note("first")
	if got := len(b.node.hashed()); got != 1 {
		t.Errorf("%d notes of one file", got)
	}
	made := b.node.hashed()[0]
	var many []hashed
	for i := range maxHashed {
		one := made
		one.Inode += uint64(i) + 1
		many = append(many, one)
	}
	data, err := json.Marshal(many)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.node.Cache, hashedName), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.note("first")
	if got := b.node.hashed(); len(got) != maxHashed || got[0].Inode != many[1].Inode {
		t.Errorf("%d notes, the first %+v; want the latest %d", len(got), got[0], maxHashed)
	}
}

// A file that is written while it is hashed is left to its user.
func TestDigestOfAFileThatIsWrittenMeanwhile(t *testing.T) {
	b := newNotesBench(t)
	const size = 64 << 20
	if err := os.Truncate(b.write("large", 1), size); err != nil {
		t.Fatal(err)
	}
	b.settle("large")
	f := b.open("large")
	at := func() int64 {
		offset, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_CUR)
		if err != nil {
			t.Error(err)
		}
		return offset
	}
	meanwhile := make(chan bool)
	go func() {
		for at() == 0 {
		}
		other, err := os.OpenFile(b.path("large"), os.O_WRONLY, 0)
		if err == nil {
			_, err = other.WriteString("x")
		}
		before := at() < size
		if err != nil || other.Close() != nil {
			t.Errorf("write: %v", err)
		}
		meanwhile <- before
	}()
	got := b.node.digest(f)
	if <-meanwhile && got != "" {
		t.Errorf("digest %s, want none", got)
	}
	b.right("large")
}
