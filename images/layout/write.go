package layout

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Named is an image to write, under its whole name.
type Named struct {
	Name string
	Root ocispec.Descriptor
}

// DockerImage is an image as Docker's own archives list it, for programs that know nothing else.
type DockerImage struct {
	Config ocispec.Descriptor
	Tags   []string
	Layers []ocispec.Descriptor
}

// Write writes an OCI layout as a tar archive, which is a Docker archive too.
// blobs is everything that the images consist of; open opens each.
func Write(w io.Writer, images []Named, docker []DockerImage, blobs []ocispec.Descriptor, open func(ocispec.Descriptor) (io.ReadCloser, error)) error {
	t := tar.NewWriter(w)
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	for _, img := range images {
		d := img.Root
		d.Platform, d.Annotations = nil, map[string]string{containerdName: img.Name}
		if i := strings.LastIndex(img.Name, ":"); i > strings.LastIndex(img.Name, "/") && !strings.Contains(img.Name, "@") {
			d.Annotations[ocispec.AnnotationRefName] = img.Name[i+1:]
		}
		index.Manifests = append(index.Manifests, d)
	}
	manifest := []dockerImage{}
	for _, img := range docker {
		entry := dockerImage{Config: blobName(img.Config.Digest), RepoTags: img.Tags}
		for _, l := range img.Layers {
			entry.Layers = append(entry.Layers, blobName(l.Digest))
		}
		manifest = append(manifest, entry)
	}
	for _, doc := range []struct {
		name string
		v    any
	}{
		{ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}},
		{ocispec.ImageIndexFile, index},
		{"manifest.json", manifest},
	} {
		if doc.name == "manifest.json" && len(manifest) == 0 {
			continue
		}
		data, err := json.Marshal(doc.v)
		if err != nil {
			return fmt.Errorf("write %s: %w", doc.name, err)
		}
		if err := writeFile(t, doc.name, int64(len(data)), strings.NewReader(string(data))); err != nil {
			return err
		}
	}
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		if err := t.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return fmt.Errorf("write %s: %w", dir, err)
		}
	}
	for _, d := range blobs {
		if err := writeBlob(t, d, open); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeBlob(t *tar.Writer, d ocispec.Descriptor, open func(ocispec.Descriptor) (io.ReadCloser, error)) error {
	r, err := open(d)
	if err != nil {
		return err
	}
	defer r.Close()
	return writeFile(t, blobName(d.Digest), d.Size, r)
}

func writeFile(t *tar.Writer, name string, size int64, r io.Reader) error {
	err := t.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size})
	if err == nil {
		_, err = io.Copy(t, r)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Unpack makes a directory of a tar archive of a layout. The directory must be empty or not there.
func Unpack(r io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return errors.Join(err, fmt.Errorf("write images to %q: the folder is not empty: %w", dir, errdefs.ErrAlreadyExists))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("write images to %q: %w", dir, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := unpackFile(root, clean(h.Name), t); err != nil {
			return fmt.Errorf("write images to %q: %w", dir, err)
		}
	}
}

func unpackFile(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}
