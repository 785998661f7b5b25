package regular

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// tree is a folder with a file, and with everything that is none.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	do(os.WriteFile(filepath.Join(root, "etc/file"), []byte("12345"), 0o600))
	do(os.Symlink("/etc/file", filepath.Join(root, "absolute")))
	do(os.Symlink("../../../../../etc/file", filepath.Join(root, "etc/up")))
	do(os.Symlink("loop", filepath.Join(root, "loop")))
	do(os.Symlink("/etc/nothing", filepath.Join(root, "dangling")))
	do(unix.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	do(os.Symlink("/fifo", filepath.Join(root, "to-fifo")))
	do(unix.Mknod(filepath.Join(root, "zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	l, err := net.Listen("unix", filepath.Join(root, "socket"))
	do(err)
	t.Cleanup(func() { l.Close() })
	return root
}

func readIn(root, name string, limit int64) ([]byte, error) {
	f, err := Tree(root).Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, name, limit)
}

func TestOpenIn(t *testing.T) {
	root := tree(t)
	for _, name := range []string{"etc/file", "/etc/file", "absolute", "etc/up", "../../etc/file", "/../absolute"} {
		if data, err := readIn(root, name, 5); err != nil || string(data) != "12345" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{"fifo", "to-fifo", "zero", "socket", "etc", "", "."} {
		if _, err := readIn(root, name, 5); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"dangling", "etc/nothing", "nothing/file"} {
		if _, err := readIn(root, name, 5); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readIn(root, "loop", 5); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
	if _, err := readIn(root, "etc/file", 4); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "longer than 4 bytes") {
		t.Errorf("more than the limit: %v", err)
	}
}

func TestFirst(t *testing.T) {
	root := tree(t)
	nowhere := []string{"dangling", "nothing/file", "loop", "fifo", "etc", "etc/file/below", strings.Repeat("n", 300), "etc/file\x00"}
	f, err := First(root, append(nowhere, "absolute", "etc/up"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Name() != "absolute" {
		t.Errorf("opened %q", f.Name())
	}
	if _, err := First(root, nowhere); !errdefs.IsNotFound(err) {
		t.Errorf("none is there: %v", err)
	}
	if _, err := First(root+"/nothing", []string{"etc/file"}); !errors.Is(err, fs.ErrNotExist) || errdefs.IsNotFound(err) {
		t.Errorf("without a root: %v", err)
	}
}

func TestRead(t *testing.T) {
	root := tree(t)
	if data, err := Read(filepath.Join(root, "etc/file"), 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, %v", data, err)
	}
	for _, name := range []string{filepath.Join(root, "fifo"), filepath.Join(root, "socket"), root, "/dev/zero"} {
		if _, err := Read(name, 5); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ReadConfigured(name, 5); !errdefs.IsFailedPrecondition(err) || errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s, of a configuration: %v", name, err)
		}
	}
	if _, err := Read(filepath.Join(root, "etc/file"), 4); !errdefs.IsInvalidArgument(err) {
		t.Errorf("more than the limit: %v", err)
	}
	if _, err := Read("/proc/self/mountinfo", 1<<20); err != nil { // its size is 0
		t.Error(err)
	}
}
