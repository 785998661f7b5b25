// Package oci builds the images that tests and the demo run, and serves them from a registry on
// loopback. Everything is deterministic: the same input gives the same digests, so a test may name
// them.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of everything in an image.
var epoch = time.Unix(1735689600, 0).UTC() // 2025-01-01

// File is one entry of a layer.
type File struct {
	Name     string // path without a leading slash; a trailing slash makes a directory
	Body     []byte
	Mode     int64  // permission bits; 0 means 0755 for directories and programs, see Program
	Link     string // target of a link, taken as it is
	Hard     bool   // Link is another name of an earlier file, not a symbolic link
	UID, GID int
}

// Program is an executable file.
func Program(name string, body []byte) File { return File{Name: name, Body: body, Mode: 0o755} }

// Text is an ordinary file.
func Text(name, body string) File { return File{Name: name, Body: []byte(body), Mode: 0o644} }

// Dir is a directory with the given permission bits.
func Dir(name string, mode int64) File { return File{Name: path.Clean(name) + "/", Mode: mode} }

// Symlink is a symbolic link, also one that leads out of the image.
func Symlink(name, target string) File { return File{Name: name, Link: target, Mode: 0o777} }

// Hardlink is another name of a file that comes before it in the layer.
func Hardlink(name, target string) File {
	return File{Name: name, Link: target, Hard: true, Mode: 0o755}
}

// Layer packs files into a gzip-compressed OCI layer, in the order given. It is packed fast: each
// process of each package with nodes packs the programs of the examples.
func Layer(files ...File) (v1.Layer, error) {
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zip)
	for _, f := range files {
		header := &tar.Header{
			Name: f.Name, Mode: f.Mode, Uid: f.UID, Gid: f.GID, ModTime: epoch,
			Size: int64(len(f.Body)), Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		switch {
		case f.Hard:
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, f.Link, 0
		case f.Link != "":
			header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, f.Link, 0
		case f.Name[len(f.Name)-1] == '/':
			header.Typeflag = tar.TypeDir
		}
		if header.Mode == 0 {
			header.Mode = 0o755
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %q: %w", f.Name, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if _, err := w.Write(f.Body); err != nil {
			return nil, fmt.Errorf("pack %q: %w", f.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
