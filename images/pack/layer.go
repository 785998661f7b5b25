package pack

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/manifest"
)

// layer makes a compressed layer of a tree; diff is the digest of what it unpacks to.
func (i *Image) layer(ctx context.Context, t *tree) (d ocispec.Descriptor, diff digest.Digest, err error) {
	unpacked := digest.Canonical.Digester()
	d, err = i.spool(ocispec.MediaTypeImageLayerGzip, func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		if err := t.write(ctx, io.MultiWriter(zip, unpacked.Hash())); err != nil {
			return err
		}
		return zip.Close()
	})
	return d, unpacked.Digest(), err
}

// copyModule makes a blob of the module itself.
func (i *Image) copyModule(ctx context.Context, file string) (ocispec.Descriptor, error) {
	return i.spool(manifest.MediaTypeWasm, func(w io.Writer) error {
		f, err := regular.Open(file)
		if err != nil {
			return fmt.Errorf("read module: %w", err)
		}
		defer f.Close()
		_, err = io.Copy(w, &layout.Cancelled{Context: ctx, Reader: f})
		return err
	})
}

// spool makes a blob of what is written.
func (i *Image) spool(mediaType string, write func(io.Writer) error) (ocispec.Descriptor, error) {
	d := ocispec.Descriptor{MediaType: mediaType}
	f, err := os.CreateTemp(i.dir, "blob-")
	if err != nil {
		return d, fmt.Errorf("make layer: %w", err)
	}
	digester := digest.Canonical.Digester()
	err = write(io.MultiWriter(f, digester.Hash()))
	if err == nil {
		d.Size, err = f.Seek(0, io.SeekCurrent)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return d, err
	}
	d.Digest = digester.Digest()
	name := filepath.Join(i.dir, d.Digest.Encoded())
	if err := os.Rename(f.Name(), name); err != nil {
		return d, fmt.Errorf("make layer: %w", err)
	}
	i.blob(d, func() (io.ReadCloser, error) { return os.Open(name) })
	return d, nil
}

// write writes the tree as a tar archive: sorted, of one time and one owner.
func (t *tree) write(ctx context.Context, w io.Writer) error {
	archive := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(t.entries)) { // each folder before what is in it
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := t.entries[name].write(ctx, archive, name); err != nil {
			return fmt.Errorf("pack %q as %q: %w", t.entries[name].host, "/"+name, err)
		}
	}
	return archive.Close()
}

func (e entry) write(ctx context.Context, w *tar.Writer, name string) error {
	header := &tar.Header{Name: name, Mode: e.mode, ModTime: epoch(), Format: tar.FormatPAX}
	switch {
	case e.dir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	case e.link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
	default:
		header.Typeflag, header.Size = tar.TypeReg, e.info.Size()
	}
	if err := w.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	f, err := regular.Open(e.host)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, e.info) || info.Size() != e.info.Size() {
		return errChanged
	}
	n, err := io.Copy(w, &layout.Cancelled{Context: ctx, Reader: io.LimitReader(f, e.info.Size())})
	if err == nil && n < e.info.Size() {
		err = errChanged
	}
	return err
}
