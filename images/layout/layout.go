// Package layout reads and writes images as files: OCI image layouts and Docker
// archives, as directories or tar archives, plain or compressed.
//
// What a Layout holds comes from strangers. It is only handed out: who takes it
// compares it with its digest.
package layout

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
)

// containerdName is the annotation by which containerd and Docker give an
// image its whole name; the specification's own is mostly just a tag.
const containerdName = "io.containerd.image.name"

// Root is an image in a layout: a manifest or an index.
type Root struct {
	// Name is what the layout calls it: a whole name, just a tag, or "".
	Name string
	Desc ocispec.Descriptor
}

// Layout is an open layout. It is safe for concurrent use.
type Layout struct {
	files files
	made  map[digest.Digest][]byte // documents that a Docker archive lacks
	names map[digest.Digest]string // files of blobs that are not named for their digests
	roots []Root
}

// files is where the files of a layout are.
type files interface {
	// open opens a regular file; fs.ErrNotExist without one.
	open(name string) (io.ReadSeekCloser, int64, error)
	Close() error
}

// Open opens a directory, or a tar archive. spool is a directory for the
// content of a compressed archive while it is open.
//
// # Errors
//
// ErrNotFound if the file is not there; ErrInvalidArgument if it is neither an
// OCI layout nor a Docker archive.
func Open(ctx context.Context, file, spool string) (*Layout, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = errdefs.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open images %q: %w", file, err)
	}
	var f files
	if info.IsDir() {
		f, err = openDir(file)
	} else {
		f, err = openTar(ctx, file, spool)
	}
	if err != nil {
		return nil, fmt.Errorf("open images %q: %w", file, err)
	}
	l, err := newLayout(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("open images %q: %w", file, err)
	}
	return l, nil
}

// Read reads a tar archive from a stream; it is kept in spool while it is open.
//
// # Errors
//
// ErrInvalidArgument if it is neither an OCI layout nor a Docker archive.
func Read(ctx context.Context, r io.Reader, spool string) (*Layout, error) {
	f, err := readTar(ctx, r, spool)
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	l, err := newLayout(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	return l, nil
}

func newLayout(ctx context.Context, f files) (*Layout, error) {
	l := &Layout{files: f, made: map[digest.Digest][]byte{}, names: map[digest.Digest]string{}}
	err := l.readIndex()
	if errdefs.IsNotFound(err) {
		err = l.readDocker(ctx)
		if errdefs.IsNotFound(err) {
			err = fmt.Errorf("it has neither index.json nor manifest.json, so it is neither an OCI layout nor a Docker archive: %w", errdefs.ErrInvalidArgument)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// Close closes the files and deletes what was spooled.
func (l *Layout) Close() error { return l.files.Close() }

// Roots returns the images of the layout, in its order.
func (l *Layout) Roots() []Root { return slices.Clone(l.roots) }

// readIndex reads the roots of an OCI layout.
func (l *Layout) readIndex() error {
	data, err := l.document("index.json")
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return fmt.Errorf("index.json: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	for _, d := range index.Manifests {
		if err := manifest.CheckDescriptor(d); err != nil {
			return fmt.Errorf("index.json: %w", err)
		}
		name := cmp.Or(d.Annotations[containerdName], d.Annotations[ocispec.AnnotationRefName])
		if name == "" && manifest.DescribesOther(d) {
			continue
		}
		d.Annotations, d.Data, d.URLs = nil, nil, nil
		l.roots = append(l.roots, Root{Name: name, Desc: d})
	}
	// What has no name beside images with names is a part of these.
	named := slices.ContainsFunc(l.roots, func(r Root) bool { return r.Name != "" })
	l.roots = slices.DeleteFunc(l.roots, func(r Root) bool { return named && r.Name == "" })
	return nil
}

// document reads a small file.
func (l *Layout) document(name string) ([]byte, error) {
	f, size, err := l.files.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = errdefs.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer f.Close()
	if size > manifest.MaxDocument {
		return nil, fmt.Errorf("%s: %d bytes are more than %d: %w", name, size, manifest.MaxDocument, errdefs.ErrInvalidArgument)
	}
	data, err := io.ReadAll(io.LimitReader(f, manifest.MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

func blobName(d digest.Digest) string { return path.Join("blobs", d.Algorithm().String(), d.Encoded()) }

// Has reports whether content is in the layout.
func (l *Layout) Has(d digest.Digest) bool {
	r, err := l.Fetch(context.Background(), ocispec.Descriptor{Digest: d}, 0)
	if err != nil {
		return false
	}
	r.Close()
	return true
}

// Fetch opens content from an offset on.
//
// # Errors
//
// ErrNotFound if the layout does not hold it.
func (l *Layout) Fetch(_ context.Context, desc ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if err := desc.Digest.Validate(); err != nil {
		return nil, fmt.Errorf("digest %q: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	if data, ok := l.made[desc.Digest]; ok {
		return io.NopCloser(bytes.NewReader(data[min(offset, int64(len(data))):])), nil
	}
	name, ok := l.names[desc.Digest]
	if !ok {
		name = blobName(desc.Digest)
	}
	f, _, err := l.files.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("content %s is not in the archive: %w", desc.Digest, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open content %s: %w", desc.Digest, err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("open content %s: %w", desc.Digest, err), f.Close())
	}
	return f, nil
}

// Refuse takes content as wrong; there is no other place to fetch it from.
func (l *Layout) Refuse(digest.Digest) bool { return false }

// Served names no server.
func (l *Layout) Served() map[digest.Digest]string { return nil }

// dirFiles are the files below a directory.
type dirFiles struct{ root *os.Root }

func openDir(dir string) (files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return dirFiles{root}, nil
}

func (d dirFiles) open(name string) (io.ReadSeekCloser, int64, error) {
	// Devices and pipes are not even to be opened.
	info, err := d.root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (d dirFiles) Close() error { return d.root.Close() }
