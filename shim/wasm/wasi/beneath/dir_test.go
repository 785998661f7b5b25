package beneath

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openat2 and the walk answer the same, in a container's "/" and in other directories.
func TestOpen(t *testing.T) {
	root := t.TempDir()
	os.MkdirAll(root+"/a/b", 0o755)
	os.WriteFile(root+"/a/f", nil, 0o644)
	for link, text := range map[string]string{"in": "a/f", "a/up": "../a/f", "abs": "/a/f", "out": "..", "loop": "loop"} {
		if err := os.Symlink(text, root+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	walks := []bool{true}
	if HasOpenat2(fd) {
		walks = append(walks, false)
	}
	for _, test := range []struct {
		path        string
		apart, root error
	}{
		{"a/f", nil, nil},
		{"a/b/../f", nil, nil},
		{"in", nil, nil},
		{"a/up", nil, nil},
		{"abs", unix.EPERM, nil},
		{"out/a/f", unix.EPERM, nil},
		{"../a", unix.EPERM, unix.EPERM},
		{"/a/f", unix.EPERM, unix.EPERM},
		{"", unix.ENOENT, unix.ENOENT},
		{"a/f/x", unix.ENOTDIR, unix.ENOTDIR},
		{"a/f/", unix.ENOTDIR, unix.ENOTDIR},
		{"loop", unix.ELOOP, unix.ELOOP},
		{"none", unix.ENOENT, unix.ENOENT},
	} {
		for _, walk := range walks {
			for isRoot, want := range map[bool]error{false: test.apart, true: test.root} {
				got, err := Dir{FD: fd, Root: isRoot, Walk: walk}.Open(test.path, unix.O_RDONLY, 0)
				if err == nil {
					unix.Close(got)
				}
				if err != want {
					t.Errorf("%q (root %v, walk %v): %v, want %v", test.path, isRoot, walk, err, want)
				}
			}
		}
	}
}
