package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
)

// An image is shown read-only, with the owners of its files as the container's user namespace has
// them.
func TestMountImages(t *testing.T) {
	needRoot(t)
	layers, userns := t.TempDir(), userNamespace(t)
	makeFile(t, filepath.Join(layers, "1/fs/below"), 0, 0)
	makeFile(t, filepath.Join(layers, "2/fs/above"), 33, 44)
	one := Mount{Type: "bind", Source: layers + "/2/fs", Options: []string{"ro", "rbind"}}
	two := Mount{Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + layers + "/2/fs:" + layers + "/1/fs"}}
	mapped := func(m Mount) Mount {
		m.Options = append([]string{"uidmap=0:70000:65536", "gidmap=0:80000:65536"}, m.Options...)
		return m
	}
	for name, tt := range map[string]struct {
		mount  Mount
		userns string
		owner  string
	}{
		"one layer":             {one, "", "33:44"},
		"two layers":            {two, "", "33:44"},
		"one layer with users":  {mapped(one), userns, "70033:80044"},
		"two layers with users": {mapped(two), userns, "70033:80044"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Cleanup(func() { UnmountImages(dir) })
			if err := WriteImages(dir, []Image{{Name: "3", Mounts: []Mount{tt.mount}}}); err != nil {
				t.Fatal(err)
			}
			if err := MountImages(dir, tt.userns); err != nil {
				t.Fatal(err)
			}
			shown := filepath.Join(dir, ImagesDir, "3")
			if got := owner(t, filepath.Join(shown, "above")); got != tt.owner {
				t.Errorf("owner %s, want %s", got, tt.owner)
			}
			if err := os.WriteFile(filepath.Join(shown, "new"), nil, 0o600); err == nil {
				t.Error("a file was written")
			}
			for range 2 {
				if err := UnmountImages(dir); err != nil || mounted(t, dir) {
					t.Fatalf("unmount: %v", err)
				}
			}
			if _, err := os.Lstat(filepath.Join(dir, ImagesDir)); !os.IsNotExist(err) {
				t.Errorf("the folder is left: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(dir, MappedName)); !os.IsNotExist(err) {
				t.Errorf("the mapped layers are left: %v", err)
			}
		})
	}
}

func TestImagesThatCannotBeMounted(t *testing.T) {
	needRoot(t)
	good := Mount{Type: "bind", Source: t.TempDir(), Options: []string{"ro", "rbind"}}
	mapped := Mount{Type: "bind", Source: good.Source, Options: []string{"uidmap=0:70000:65536", "gidmap=0:80000:65536", "ro", "rbind"}}
	for name, tt := range map[string]struct {
		image Image
		is    func(error) bool
	}{
		"name leads up":      {Image{Name: "..", Mounts: []Mount{good}}, errdefs.IsInvalidArgument},
		"name has a slash":   {Image{Name: "a/b", Mounts: []Mount{good}}, errdefs.IsInvalidArgument},
		"no name":            {Image{Mounts: []Mount{good}}, errdefs.IsInvalidArgument},
		"no user namespace":  {Image{Name: "1", Mounts: []Mount{mapped}}, errdefs.IsNotImplemented},
		"no source anywhere": {Image{Name: "1", Mounts: []Mount{{Type: "bind", Source: "/nowhere/at/all"}}}, func(err error) bool { return errors.Is(err, os.ErrNotExist) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := WriteImages(dir, []Image{{Name: "0", Mounts: []Mount{good}}, tt.image}); err != nil {
				t.Fatal(err)
			}
			err := MountImages(dir, "")
			if err == nil || !tt.is(err) {
				t.Errorf("got %v", err)
			}
			if mounted(t, dir) {
				t.Error("the first image is left mounted")
			}
		})
	}
	dir := t.TempDir()
	if err := WriteImages(dir, nil); err != nil {
		t.Errorf("no images: %v", err)
	}
	if err := MountImages(dir, ""); err != nil {
		t.Errorf("no images: %v", err)
	}
}
