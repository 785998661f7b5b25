package wasip1

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// each runs a test with openat2 and with the walk.
func each(t *testing.T, test func(*testing.T, *caller)) {
	for name, walks := range map[string]bool{"openat2": false, "walk": true} {
		t.Run(name, func(t *testing.T) {
			c := newCaller(t, Config{})
			c.host.system.Fallbacks.Walk = walks
			test(t, c)
		})
	}
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, c *caller) {
		path := func(s string) (uint64, uint64) { return c.Str(atText, s) }
		one := func(e Errno, f, s string) {
			t.Helper()
			p, n := path(s)
			c.want(e, f, 3, p, n)
		}
		one(success, "path_create_directory", "d")
		one(success, "path_create_directory", "d/e/")
		one(eexist, "path_create_directory", "d")
		one(eexist, "path_create_directory", ".")
		one(eexist, "path_create_directory", "d/..")
		one(eperm, "path_create_directory", "..")
		one(eperm, "path_create_directory", "../x")
		one(eperm, "path_create_directory", "/x")
		one(enoent, "path_create_directory", "")
		one(enoent, "path_create_directory", "none/x")
		one(enotempty, "path_remove_directory", "d")
		one(einval, "path_remove_directory", ".")
		one(eperm, "path_remove_directory", "d/../..")
		one(eisdir, "path_unlink_file", "d/e")
		one(eisdir, "path_unlink_file", "d/e/")
		one(success, "path_remove_directory", "d/e/")
		one(enoent, "path_remove_directory", "d/e")
		c.put("f", "")
		one(enotdir, "path_remove_directory", "f")
		one(enotdir, "path_unlink_file", "f/")
		one(success, "path_unlink_file", "d/../f")
		one(enoent, "path_unlink_file", "f")
	})
}

func TestLinks(t *testing.T) {
	each(t, func(t *testing.T, c *caller) {
		c.put("f", "content")
		os.Mkdir(c.root+"/d", 0o755)
		symlink := func(want Errno, text, path string) {
			t.Helper()
			a, n := c.Str(atText, text)
			b, m := c.Str(atText2, path)
			c.want(want, "path_symlink", a, n, 3, b, m)
		}
		symlink(success, "f", "s")
		symlink(success, "../f", "d/up")
		symlink(eexist, "f", "s")
		symlink(enoent, "f", "new/")
		symlink(eperm, "/f", "abs")
		symlink(enoent, "", "empty")
		symlink(success, "nowhere", "dangling")
		symlink(success, "d", "sd")

		readlink := func(want Errno, path, text string, room uint64) {
			t.Helper()
			p, n := c.Str(atText, path)
			c.want(want, "path_readlink", 3, p, n, atData, room, atResult)
			if want == success && string(c.Bytes(atData, c.U32(atResult))) != text {
				t.Errorf("link %q reads %q", path, c.Bytes(atData, c.U32(atResult)))
			}
		}
		readlink(success, "d/up", "../f", 100)
		readlink(success, "d/up", "..", 2)
		readlink(success, "s", "", 0)
		readlink(einval, "f", "", 100)
		readlink(einval, "sd/", "", 100)
		readlink(enotdir, "s/", "", 100)
		readlink(enoent, "none", "", 100)
		readlink(einval, ".", "", 100)

		if e, fd := c.tryOpen(3, "d/up", lookupFollow, 0, rightFdRead, 0); e != success {
			t.Error("open a link that climbs inside:", e)
		} else if got, _ := c.read(fd, 100); got != "content" {
			t.Errorf("read %q", got)
		}
		for path, want := range map[string]Errno{"s": eloop, "dangling": eloop, "d/up": eloop, "sd/": success} {
			if e, _ := c.tryOpen(3, path, 0, 0, rightFdRead|rightFdReaddir, 0); e != want {
				t.Errorf("open %q without following: %d", path, e)
			}
		}
		if e, _ := c.tryOpen(3, "dangling", lookupFollow, openCreate, rightFdRead, 0); e != success {
			t.Error("create through a link:", e)
		}
		if _, err := os.Stat(c.root + "/nowhere"); err != nil {
			t.Error(err)
		}

		link := func(want Errno, flags uint64, from, to string) {
			t.Helper()
			a, n := c.Str(atText, from)
			b, m := c.Str(atText2, to)
			c.want(want, "path_link", 3, flags, a, n, 3, b, m)
		}
		link(success, 0, "s", "s2") // the link itself
		readlink(success, "s2", "f", 100)
		link(success, 1, "s", "f2") // what it points to
		readlink(einval, "f2", "", 100)
		link(success, 1, "d/up", "f3")
		link(eperm, 0, "d", "d2")
		link(eperm, 0, "sd/", "d2")
		link(enotdir, 0, "f/", "f4")
		link(enoent, 0, "f", "f4/")
		link(eexist, 0, "f", "f2")
		link(eperm, 0, "../f", "f4")
		link(einval, 2, "f", "f4")
		os.Symlink("none", c.root+"/dangling2")
		link(enoent, 1, "dangling2", "f4")
		os.Symlink("loop", c.root+"/loop")
		link(eloop, 1, "loop", "f4")
		if e, _ := c.tryOpen(3, "loop", lookupFollow, 0, 0, 0); e != eloop {
			t.Error("loop:", e)
		}
	})
}

func TestTimesOfLinks(t *testing.T) {
	each(t, func(t *testing.T, c *caller) {
		c.put("f", "")
		os.Symlink("f", c.root+"/s")
		for _, byName := range []bool{false, true} {
			set := func(follow bool, path string, nsec int64) {
				t.Helper()
				c.host.system.Fallbacks.TimesByName = byName
				flags := uint64(0)
				if follow {
					flags = 1
				}
				p, n := c.Str(atText, path)
				c.must("path_filestat_set_times", 3, flags, p, n, uint64(nsec), uint64(nsec), uint64(timeAccess|timeModify))
			}
			set(false, "s", 1e9)
			set(true, "s", 2e9)
			link, _ := os.Lstat(c.root + "/s")
			file, _ := os.Stat(c.root + "/s")
			if link.ModTime().Unix() != 1 || file.ModTime().Unix() != 2 {
				t.Errorf("by name %v: link %v, file %v", byName, link.ModTime(), file.ModTime())
			}
			set(true, ".", 3e9)
		}
	})
}

func TestRename(t *testing.T) {
	each(t, func(t *testing.T, c *caller) {
		c.put("f", "1")
		c.put("g", "2")
		os.MkdirAll(c.root+"/d/e", 0o755)
		rename := func(want Errno, from, to string) {
			t.Helper()
			a, n := c.Str(atText, from)
			b, m := c.Str(atText2, to)
			c.want(want, "path_rename", 3, a, n, 3, b, m)
		}
		rename(success, "f", "g")
		rename(success, "g", "d/e/../h")
		rename(enoent, "g", "f")
		rename(enotdir, "d/h/", "x")
		rename(success, "d/e/", "x/")
		rename(einval, "d", "d/y")
		rename(ebusy, ".", "y")
		rename(eperm, "d", "../y")
		rename(eperm, "../d", "y")
		rename(eisdir, "d/h", "x")
		rename(enotdir, "x", "d/h")
	})
}

// A directory's links and ".." lead out of no directory.
func TestEscapes(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	os.WriteFile(secret, []byte("secret"), 0o644)
	up, _ := filepath.Rel(t.TempDir(), secret)
	for _, name := range []string{"/", "/data"} {
		for _, walks := range []bool{false, true} {
			root := t.TempDir()
			c := newCaller(t, Config{Preopens: []Preopen{{FD: wasitest.OpenDir(t, root), Name: name}}})
			c.host.system.Fallbacks.Walk = walks
			os.MkdirAll(root+"/d/e", 0o755)
			os.MkdirAll(root+"/usr", 0o755)
			os.WriteFile(root+"/usr/tool", []byte("inside"), 0o644)
			for link, text := range map[string]string{
				"abs": secret, "rel": up, "absdir": outside, "reldir": filepath.Dir(up), "root": "/", "parent": "..",
				"d/parents": "../../../../../..", "proc": "/proc/self/root", "self": "/proc/self/fd",
				"inside": "/usr/tool", "d/inside": "/usr/tool",
			} {
				if err := os.Symlink(text, root+"/"+link); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range []string{
				"abs", "rel", "absdir/secret", "reldir/secret", "root" + secret, "parent/" + filepath.Base(root) + "/usr/tool/..",
				"d/parents" + secret, "proc" + secret, "../" + filepath.Base(outside) + "/secret", "d/../../x", "d/e/../../../x",
				"self/0", secret,
			} {
				e, fd := c.tryOpen(3, path, lookupFollow, 0, rightFdRead, 0)
				if e == success {
					got, _ := c.read(fd, 100)
					t.Errorf("preopen %q, walks %v: %q opened: %q", name, walks, path, got)
				}
				if name != "/" && e != eperm && e != enotdir && e != eloop {
					t.Errorf("preopen %q, walks %v: %q is errno %d", name, walks, path, e)
				}
			}
			p, n := c.Str(atText, "absdir/new")
			if e := c.do("path_create_directory", 3, p, n); e == success {
				t.Error("made a directory outside")
			}
			p, n = c.Str(atText, "absdir/secret")
			if e := c.do("path_unlink_file", 3, p, n); e == success {
				t.Error("removed a file outside")
			}
			if e := c.do("path_filestat_get", 3, 1, p, n, atData); e == success {
				t.Error("looked at a file outside")
			}
			q, m := c.Str(atText2, "stolen")
			if e := c.do("path_link", 3, 1, p, n, 3, q, m); e == success {
				t.Error("linked a file from outside")
			}
			for _, path := range []string{"inside", "d/inside"} {
				e, _ := c.tryOpen(3, path, lookupFollow, 0, rightFdRead, 0)
				if want := map[bool]Errno{true: success, false: eperm}[name == "/"]; e != want {
					t.Errorf("preopen %q, walks %v: %q = %d, want %d", name, walks, path, e, want)
				}
			}
			if name != "/" {
				continue
			}
			// Links climb no higher than the root of the container, and stay usable there.
			for _, path := range []string{"root/usr/tool", "d/parents/usr/tool", "parent/usr/tool"} {
				if e, _ := c.tryOpen(3, path, lookupFollow, 0, rightFdRead, 0); e != success {
					t.Errorf("walks %v: %q = %d", walks, path, e)
				}
			}
			// A directory that the guest opened itself is no root.
			e, d := c.tryOpen(3, "d", 0, openDirectory, rightsDirectory, 0)
			if e != success {
				t.Fatal(e)
			}
			for _, path := range []string{"inside", "../usr/tool", "parents/usr/tool", ".."} {
				if e, _ := c.tryOpen(d, path, lookupFollow, 0, rightFdRead, 0); e != eperm {
					t.Errorf("walks %v: %q below d = %d", walks, path, e)
				}
			}
			if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
				t.Fatal("the file outside was changed:", err)
			}
		}
	}
}

// A directory that is renamed and replaced while paths run through it leads nowhere else.
func TestEscapeByRace(t *testing.T) {
	outside := t.TempDir()
	os.WriteFile(outside+"/f", []byte("secret"), 0o644)
	each(t, func(t *testing.T, c *caller) {
		os.MkdirAll(c.root+"/a/b", 0o755)
		os.WriteFile(c.root+"/a/b/f", []byte("inside"), 0o644)
		os.WriteFile(c.root+"/f", []byte("inside"), 0o644)
		os.Symlink(outside, c.root+"/evil")
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !stop.Load() {
				unix.Renameat2(unix.AT_FDCWD, c.root+"/a/b", unix.AT_FDCWD, c.root+"/evil", unix.RENAME_EXCHANGE)
				os.Rename(c.root+"/a/b", outside+"/moved")
				os.Rename(outside+"/moved", c.root+"/a/b")
			}
		}()
		opened := 0
		for range 3000 {
			for _, path := range []string{"a/b/f", "a/b/../../f", "a/b/../b/f"} {
				e, fd := c.tryOpen(3, path, lookupFollow, 0, rightFdRead, 0)
				if e != success {
					continue
				}
				opened++
				if got, _ := c.read(fd, 10); got != "inside" {
					t.Fatalf("%q read %q", path, got)
				}
				c.must("fd_close", fd)
			}
		}
		stop.Store(true)
		<-done
		t.Log(opened, "opened")
	})
}

// The process around the guest is not the guest's, even where its image has procfs mounted.
func TestProcfs(t *testing.T) {
	c := newCaller(t, Config{Preopens: []Preopen{{FD: wasitest.OpenDir(t, "/"), Name: "/"}}})
	for _, path := range []string{
		"proc", "proc/self", "proc/self/mem", "proc/self/maps", "proc/self/environ", "proc/thread-self/mem",
		"proc/sys/kernel/hostname", "proc/self/task", "proc/self/cwd", "proc/self/exe", "proc/1/root/etc/passwd",
		"proc/self/root/etc/hostname", "proc/self/fd/0",
	} {
		c.host.system.Fallbacks.Walk = false
		if e, fd := c.tryOpen(3, path, lookupFollow, 0, rightFdRead, 0); e == success {
			t.Errorf("%q opened as %d", path, fd)
		}
		// The walk takes a magic link for the text it shows, which stays below the root.
		c.host.system.Fallbacks.Walk = true
		e, fd := c.tryOpen(3, path, lookupFollow, 0, rightFdRead, 0)
		if e != success {
			continue
		}
		var fs unix.Statfs_t
		if err := unix.Fstatfs(c.host.table.open[fd].file.FD(), &fs); err != nil || fs.Type == unix.PROC_SUPER_MAGIC {
			t.Errorf("%q opened as %d by the walk", path, fd)
		}
	}
}
