package layout

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/images/program"
	"github.com/sunaba-project/sunaba/images/unpack/extract"
)

const (
	// maxFiles bounds the files of an archive.
	maxFiles = 1 << 20
	// maxLinks bounds the links from one file to the next.
	maxLinks = 8
)

// tarFiles are the files in a tar archive, which is read where they lie.
type tarFiles struct {
	file  *os.File
	spool bool // the file is to be deleted
	at    map[string]place
	links map[string]string
}

type place struct{ offset, size int64 }

// openTar opens an archive in a file. One that is compressed is spooled.
func openTar(ctx context.Context, name, spool string) (files, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	magic := make([]byte, 4)
	n, err := f.ReadAt(magic, 0)
	if err != nil && err != io.EOF {
		return nil, errors.Join(err, f.Close())
	}
	if program.IsCompressed(magic[:n]) {
		defer f.Close()
		return readTar(ctx, f, spool)
	}
	t := &tarFiles{file: f}
	if err := t.index(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// readTar spools a stream, decompressed.
func readTar(ctx context.Context, r io.Reader, spool string) (_ files, err error) {
	if err := os.MkdirAll(spool, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(spool, "archive-")
	if err != nil {
		return nil, err
	}
	t := &tarFiles{file: f, spool: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	plain, err := extract.Decompress(r)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer plain.Close()
	if _, err := io.Copy(f, &Cancelled{ctx, plain}); err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return t, t.index(ctx)
}

// Cancelled is a reader that ends with its context.
type Cancelled struct {
	Context context.Context
	io.Reader
}

// Read reads unless the context has ended.
func (c *Cancelled) Read(p []byte) (int, error) {
	if c.Context.Err() != nil {
		return 0, context.Cause(c.Context)
	}
	return c.Reader.Read(p)
}

// index notes where each file lies.
func (t *tarFiles) index(ctx context.Context) error {
	t.at, t.links = map[string]place{}, map[string]string{}
	r := tar.NewReader(t.file)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read archive: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		name := clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			offset, err := t.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			t.at[name] = place{offset, h.Size}
		case tar.TypeSymlink:
			t.links[name] = clean(path.Join(path.Dir(name), h.Linkname))
		case tar.TypeLink:
			t.links[name] = clean(h.Linkname)
		}
		if len(t.at)+len(t.links) > maxFiles {
			return fmt.Errorf("the archive has more than %d files: %w", maxFiles, errdefs.ErrInvalidArgument)
		}
	}
}

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func (t *tarFiles) open(name string) (io.ReadSeekCloser, int64, error) {
	name = clean(name)
	for range maxLinks {
		if p, ok := t.at[name]; ok {
			return section{io.NewSectionReader(t.file, p.offset, p.size)}, p.size, nil
		}
		to, ok := t.links[name]
		if !ok {
			break
		}
		name = to
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// section is a file within an archive.
type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

func (t *tarFiles) Close() error {
	err := t.file.Close()
	if t.spool {
		err = errors.Join(err, os.Remove(t.file.Name()))
	}
	return err
}
