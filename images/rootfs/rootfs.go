// Package rootfs makes the roots of containers from images, and reads the modules of images.
package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/program"
	"github.com/sunaba-project/sunaba/images/retain"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// Roots are the roots of containers in an image store.
type Roots struct {
	disk      *disk.Disk
	collector *retain.Collector
}

// New returns the roots of an image store.
func New(d *disk.Disk, collector *retain.Collector) *Roots {
	return &Roots{disk: d, collector: collector}
}

// PrepareRootFS makes a writable root for a container and returns what is to be mounted for it. The
// key, such as a container id, keeps what the image consists of until RemoveRootFS; calling again
// with the same key gives the same root. A Module has no root filesystem: its key keeps the module,
// and there is nothing to mount.
//
// # Errors
//
// ErrNotFound if the image is not present any more; ErrAlreadyExists if the key
// is that of a root of another image.
func (r *Roots) PrepareRootFS(ctx context.Context, key string, img catalog.Image) ([]mount.Mount, error) {
	return r.prepareRootFS(r.disk.Layers.Prepare, key, img, map[string]string{})
}

// PrepareMappedRootFS is PrepareRootFS for a container with a user namespace of its own: the mounts
// carry the options uidmap= and gidmap=, by which who mounts them shows the image's owners as they
// are in there. A mapping is "inside:outside:length" and starts with the namespace's root.
func (r *Roots) PrepareMappedRootFS(ctx context.Context, key string, img catalog.Image, uidmap, gidmap string) ([]mount.Mount, error) {
	return r.prepareRootFS(r.disk.Layers.Prepare, key, img, unpack.MapLabels(uidmap, gidmap))
}

// PrepareView is PrepareRootFS for what a container only reads, such as an image
// that it mounts as a volume: nothing can be written to it. With mappings, "" for
// none, the mounts carry them as PrepareMappedRootFS says.
//
// # Errors
//
// Those of PrepareRootFS, and ErrInvalidArgument for a Module, which has no files.
func (r *Roots) PrepareView(ctx context.Context, key string, img catalog.Image, uidmap, gidmap string) ([]mount.Mount, error) {
	if img.Kind == catalog.Module {
		return nil, fmt.Errorf("view image %s: it is a WebAssembly module and has no files: %w", img.ID, errdefs.ErrInvalidArgument)
	}
	labels := map[string]string{}
	if uidmap != "" || gidmap != "" {
		labels = unpack.MapLabels(uidmap, gidmap)
	}
	return r.prepareRootFS(r.disk.Layers.View, key, img, labels)
}

// prepare is how the layer store makes a root.
type prepare func(key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error)

func (r *Roots) prepareRootFS(prepare prepare, key string, img catalog.Image, labels map[string]string) ([]mount.Mount, error) {
	if key == "" {
		return nil, fmt.Errorf("prepare root filesystem: empty key: %w", errdefs.ErrInvalidArgument)
	}
	recording := r.collector.Recording()
	recording.Lock()
	defer recording.Unlock()
	labels[retain.LabelImage] = img.ID
	var chain digest.Digest
	if rec, ok := r.disk.DB.State().Images[img.ID]; ok {
		chain = rec.Chain
		if chain != "" && !r.disk.Layers.Whole(chain) {
			if err := r.collector.Forget(rec.ID); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("prepare root filesystem %q: image %s is damaged and was dropped; pull it again: %w", key, img.ID, errdefs.ErrNotFound)
		}
		if rec.Module != nil {
			labels[retain.LabelModule] = rec.Module.Digest.String()
		}
		if rec.Program != "" {
			labels[retain.LabelProgram] = rec.Program.String()
		}
	} else {
		root, err := r.disk.Layers.Root(key)
		if err != nil || root.Labels[retain.LabelImage] != img.ID {
			return nil, fmt.Errorf("prepare root filesystem %q: image %s: %w", key, img.ID, errdefs.ErrNotFound)
		}
		chain, labels = root.Chain, root.Labels
	}
	mounts, err := prepare(key, chain, labels)
	if err != nil {
		return nil, err
	}
	if labels[retain.LabelModule] != "" {
		return nil, nil
	}
	return mounts, nil
}

// WithRootFS calls fn with a directory in which the root of a container can be read, during the
// call: layers, and what has been written since. For a Module it is empty. What fn finds there
// comes from strangers: it opens files through os.Root, and only regular ones.
//
// # Errors
//
// ErrNotFound if the key has no root; else fn's error.
func (r *Roots) WithRootFS(ctx context.Context, key string, fn func(root string) error) error {
	return r.disk.Layers.WithRoot(key, fn)
}

// ChangeRootFS is WithRootFS for fn that changes the root of a container before its first process
// is there.
//
// # Errors
//
// Also ErrFailedPrecondition for a root with mapped owners.
func (r *Roots) ChangeRootFS(ctx context.Context, key string, fn func(root string) error) error {
	return r.disk.Layers.ChangeRoot(key, fn)
}

// RemoveRootFS removes a container's root and what was written to it, or a view.
// It must not be mounted any more. A key without a root is no error.
func (r *Roots) RemoveRootFS(ctx context.Context, key string) error {
	root, err := r.disk.Layers.Root(key)
	if err != nil {
		return nil
	}
	if err := r.disk.Layers.Remove(key); err != nil {
		return err
	}
	if _, ok := r.disk.DB.State().Images[root.Labels[retain.LabelImage]]; ok {
		return nil
	}
	return r.collector.Sweep(ctx, 0) // the image went before its last container
}

// RootFSLost reports whether a root may have been lost before the store was opened, as by a file
// system that failed before it had written the root.
func (r *Roots) RootFSLost() bool { return r.disk.Layers.Lost() }

// RootFSKeys returns the keys that have a root, sorted.
func (r *Roots) RootFSKeys() (keys []string) {
	for _, root := range r.disk.Layers.Roots() {
		keys = append(keys, root.Key)
	}
	return keys
}

// RootFSUsage returns what has been written to a container's root, which may be known.
//
// # Errors
//
// ErrNotFound if the key has no root.
func (r *Roots) RootFSUsage(ctx context.Context, key string, known *space.Known) (space.Use, error) {
	return r.disk.Layers.RootUsage(ctx, key, known)
}

// ModulePath returns where the module of an image of kind Module lies, "" for
// any other image. It stays while the image or a root of it does.
func (r *Roots) ModulePath(img catalog.Image) string {
	if img.Kind != catalog.Module {
		return ""
	}
	return r.disk.Content.Path(img.Module.Digest)
}

// ModuleFile is the WebAssembly file that an image brings.
type ModuleFile struct {
	Image catalog.Image
	// Digest is that of an artifact's module; "" for a file of an image, whose Command names it.
	Digest  digest.Digest
	Command string
}

// ErrNoModule says that an image brings no WebAssembly module.
var ErrNoModule = fmt.Errorf("no WebAssembly module: %w", errdefs.ErrFailedPrecondition)

// ReadModuleOf calls read with the WebAssembly file that an image brings: an artifact's module, or
// the file that the image's command names.
//
// # Errors
//
// ErrNoModule if there is nothing to read; else read's error.
func (r *Roots) ReadModuleOf(ctx context.Context, img catalog.Image, read func(ModuleFile, io.Reader) error) error {
	recording := r.collector.Recording()
	recording.Lock()
	opened := sync.OnceFunc(recording.Unlock) // an open file and a view stay, however long read takes
	defer opened()
	if img.Kind == catalog.Module {
		f, err := os.Open(r.disk.Content.Path(img.Module.Digest))
		if err != nil {
			return fmt.Errorf("open module of image %s: %w", img.ID, err)
		}
		defer f.Close()
		opened()
		return read(ModuleFile{Image: img, Digest: img.Module.Digest}, f)
	}
	rec, ok := r.disk.DB.State().Images[img.ID]
	if !ok || rec.Chain == "" {
		return fmt.Errorf("image %s has no files: %w", img.ID, ErrNoModule)
	}
	return r.disk.Layers.WithChain(rec.Chain, func(dir string) error {
		opened()
		f, err := program.OpenEntrypoint(dir, img.Config)
		if err != nil {
			return fmt.Errorf("image %s: %w: %w", img.ID, err, ErrNoModule)
		}
		defer f.Close()
		command := program.Command(img.Config)[0]
		head := make([]byte, len(binfmt.WasmMagic))
		if n, err := f.ReadAt(head, 0); !binfmt.IsWasm(head[:n]) {
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read %q of image %s: %w", command, img.ID, err)
			}
			return fmt.Errorf("image %s (%s/%s): its command %q is something else: %w", img.ID, img.Platform.OS, img.Platform.Architecture, command, ErrNoModule)
		}
		return read(ModuleFile{Image: img, Command: command}, f)
	})
}
