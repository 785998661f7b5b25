// Package disk holds together what images consist of on the disk of a node: records, blobs and
// layers.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// recordsFile is what the records are in, below the root.
const recordsFile = "records.db"

// RecordsPath is where the records of the image store below root are.
func RecordsPath(root string) string { return filepath.Join(root, recordsFile) }

// Disk is an image store that is open.
type Disk struct {
	Root    string
	DB      *store.DB
	Content *store.Content
	Layers  *unpack.Store
}

// Open opens an image store.
//
// # Errors
//
// A root where overlayfs cannot be used, or that another process has open, is an error that says
// so.
func Open(o unpack.Options) (_ *Disk, err error) {
	if err := os.MkdirAll(o.Root, 0o711); err != nil {
		return nil, fmt.Errorf("create image store: %w", err)
	}
	d := &Disk{Root: o.Root}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := os.RemoveAll(d.Spool()); err != nil {
		return nil, fmt.Errorf("remove an archive that was being imported: %w", err)
	}
	if d.DB, err = store.OpenDB(RecordsPath(o.Root), o.Logger); err != nil {
		return nil, err
	}
	if d.Content, err = store.OpenContent(filepath.Join(o.Root, "content")); err != nil {
		return nil, err
	}
	d.Layers, err = unpack.Open(o)
	return d, err
}

// Close closes the image store.
func (d *Disk) Close() error {
	if d.Layers != nil {
		d.Layers.Close()
	}
	if d.DB != nil {
		return d.DB.Close()
	}
	return nil
}

// Spool is where archives are kept while they are imported. Open removes it.
func (d *Disk) Spool() string { return filepath.Join(d.Root, "spool") }

// Intact reports whether everything that an image's record names is there.
func (d *Disk) Intact(ctx context.Context, img store.Image) bool {
	return d.Content.Has(ctx, img.Manifest) && d.Content.Has(ctx, img.Config) &&
		(img.Module == nil || d.Content.Has(ctx, *img.Module)) &&
		(img.Chain == "" || d.Layers.Whole(img.Chain))
}

// HasLayers reports whether layers are there as they were transferred.
func (d *Disk) HasLayers(ctx context.Context, layers []ocispec.Descriptor) bool {
	return !slices.ContainsFunc(layers, func(l ocispec.Descriptor) bool { return !d.Content.Has(ctx, l) })
}

// Usage is the room that something takes on the filesystem of Path.
type Usage struct {
	Path          string
	Bytes, Inodes int64
}

// Usage returns the room that images take, and that the containers' own writes take.
func (d *Disk) Usage(ctx context.Context) (images, containers Usage, err error) {
	layers, roots, err := d.Layers.Usage(ctx)
	if err != nil {
		return Usage{}, Usage{}, err
	}
	bytes, inodes, err := d.Content.Usage(ctx)
	if err != nil {
		return Usage{}, Usage{}, err
	}
	return Usage{Path: d.Root, Bytes: layers.Bytes + bytes, Inodes: layers.Inodes + inodes},
		Usage{Path: d.Root, Bytes: roots.Bytes, Inodes: roots.Inodes}, nil
}
