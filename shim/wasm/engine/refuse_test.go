package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/tests/disk"
)

func TestCreateRefuses(t *testing.T) {
	component := []byte("\x00asm\x0d\x00\x01\x00and so on")
	for _, c := range []struct {
		name string
		prep func(b *bench)
		want string
		kind error
	}{
		{"missing import", func(b *bench) {
			copyFile(t, shared.build(t, "lacking"), filepath.Join(b.bundle.Rootfs, "app.wasm"))
		}, `import "env"."launch_missiles" is missing`, errdefs.ErrInvalidArgument},
		{"imported memory", importing(0x02, 0, 1), `import "env"."thing" is missing: the host has functions, and no memory`, errdefs.ErrInvalidArgument},
		{"imported table", importing(0x01, 0x70, 0, 1), `import "env"."thing" is missing: the host has functions, and no table`, errdefs.ErrInvalidArgument},
		{"imported global", importing(0x03, 0x7f, 0), `import "env"."thing" is missing: the host has functions, and no global`, errdefs.ErrInvalidArgument},
		{"component", func(b *bench) {
			if err := os.WriteFile(filepath.Join(b.bundle.Rootfs, "app.wasm"), component, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "component", errdefs.ErrInvalidArgument},
		{"broken", func(b *bench) {
			if err := os.WriteFile(filepath.Join(b.bundle.Rootfs, "app.wasm"), []byte("\x00asm\x01\x00\x00\x00\x03\x02\x01\x07"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "not valid", errdefs.ErrInvalidArgument},
		{"user namespace", func(b *bench) {
			b.bundle.Spec.Linux.Namespaces = append(b.bundle.Spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
			b.bundle.Spec.Linux.UIDMappings = []specs.LinuxIDMapping{{HostID: 70000, Size: 10}}
			b.bundle.Spec.Process.User.UID = 10
		}, "user 10 is not in the container's user namespace", errdefs.ErrInvalidArgument},
		{"file system", func(b *bench) {
			b.bundle.Spec.Mounts = []specs.Mount{{Type: "ext4", Source: "/dev/null", Destination: "/x"}}
		}, "ext4", errdefs.ErrFailedPrecondition},
		{"source", func(b *bench) {
			b.bundle.Spec.Mounts = []specs.Mount{{Type: "bind", Source: "/nothing/here", Destination: "/x"}}
		}, "/nothing/here", nil},
		{"resource limit", func(b *bench) {
			b.bundle.Spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_SOCKS"}}
		}, "RLIMIT_SOCKS", errdefs.ErrInvalidArgument},
		{"network namespace", func(b *bench) {
			b.bundle.Spec.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.NetworkNamespace, Path: "/nothing/here"}}
		}, "/nothing/here", nil},
		{"digest", func(b *bench) {
			artifact(b)
			b.bundle.Rootfs = ""
			b.bundle.Facts.Module.Digest = "sha256:" + strings.Repeat("0", 64)
		}, "digest", errdefs.ErrInvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "probe")
			c.prep(b)
			b.pipes(false)
			_, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
			b.release()
			if err == nil || !strings.Contains(err.Error(), c.want) || c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("got %v, want %v with %q", err, c.kind, c.want)
			}
			b.checkGone(0)
		})
	}
}

// A mount point cannot be made where the disk takes nothing.
func TestCreateOnARefusingDisk(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse func(root string) (undo func())
		kind   error
	}{
		{"read-only", func(root string) func() { return disk.Cover(t, root) }, errdefs.ErrFailedPrecondition},
		{"full", func(root string) func() {
			app, err := os.ReadFile(filepath.Join(root, "app.wasm"))
			if err == nil {
				err = unix.Mount("tmpfs", root, "tmpfs", 0, "nr_inodes=2")
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(root, "app.wasm"), app, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			}
		}, unix.ENOSPC},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "probe")
			b.bundle.Spec.Mounts = []specs.Mount{{Type: "tmpfs", Source: "tmpfs", Destination: "/x"}}
			undo := c.refuse(b.bundle.Rootfs)
			b.pipes(false)
			_, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
			b.release()
			undo()
			if !errors.Is(err, c.kind) {
				t.Errorf("got %v, want %v", err, c.kind)
			}
			b.checkGone(0)
		})
	}
}

// importing has a bundle run a module that imports a thing of this kind and type.
func importing(thing ...byte) func(b *bench) {
	named := append([]byte("\x01\x03env\x05thing"), thing...)
	module := slices.Concat([]byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x02"), []byte{byte(len(named))}, named,
		[]byte("\x03\x02\x01\x00\x07\x0a\x01\x06_start\x00\x00\x0a\x04\x01\x02\x00\x0b"))
	return func(b *bench) {
		b.t.Helper()
		if err := os.WriteFile(filepath.Join(b.bundle.Rootfs, "app.wasm"), module, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestHandles(t *testing.T) {
	for _, c := range []struct {
		name string
		prep func(b *bench)
		want bool
	}{
		{"absolute", func(*bench) {}, true},
		{"relative to cwd", func(b *bench) { b.bundle.Spec.Process.Args[0] = "./app.wasm" }, true},
		{"in cwd", func(b *bench) { b.bundle.Spec.Process.Args[0] = "app.wasm" }, true},
		{"by path", func(b *bench) {
			b.bundle.Spec.Process.Args[0], b.bundle.Spec.Process.Cwd = "app.wasm", "/nowhere"
			b.bundle.Spec.Process.Env = []string{"PATH=/bin:/"}
		}, true},
		{"not in path", func(b *bench) { b.bundle.Spec.Process.Args[0], b.bundle.Spec.Process.Cwd = "app.wasm", "/nowhere" }, false},
		{"elf", func(b *bench) { copyFile(t, "/bin/true", filepath.Join(b.bundle.Rootfs, "app.wasm")) }, false},
		{"empty", func(b *bench) {
			if err := os.Truncate(filepath.Join(b.bundle.Rootfs, "app.wasm"), 0); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"directory", func(b *bench) { b.bundle.Spec.Process.Args[0] = "/" }, false},
		{"fifo", func(b *bench) {
			if err := unix.Mkfifo(filepath.Join(b.bundle.Rootfs, "fifo"), 0o666); err != nil {
				t.Fatal(err)
			}
			b.bundle.Spec.Process.Args[0] = "/fifo"
		}, false},
		{"link out", func(b *bench) {
			if err := os.Symlink(shared.build(t, "probe"), filepath.Join(b.bundle.Rootfs, "out")); err != nil {
				t.Fatal(err)
			}
			b.bundle.Spec.Process.Args[0] = "/out"
		}, false},
		{"sandbox", func(b *bench) { b.bundle.Facts.Sandbox = true }, false},
		{"artifact", artifact, true},
		{"the caller says so", func(b *bench) { b.bundle.Facts.Program = annotation.Wasm }, true},
		{"the caller says no", func(b *bench) { b.bundle.Facts.Program = annotation.OCI }, false},
		{"nothing", func(b *bench) { b.bundle.Spec.Process = nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "probe")
			c.prep(b)
			got, err := b.engine.Handles(context.Background(), b.bundle)
			if err != nil || got != c.want {
				t.Errorf("got %v, %v; want %v", got, err, c.want)
			}
		})
	}
}
