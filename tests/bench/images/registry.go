package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// registry serves images from files, so that it needs little of the memory and
// the time that are measured.
type registry struct {
	dir    string
	host   string
	server *http.Server
}

func serve(dir string) (*registry, error) {
	for _, sub := range []string{"blobs", "tags"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &registry{dir: dir, host: l.Addr().String()}
	r.server = &http.Server{Handler: r}
	go r.server.Serve(l) // until close
	return r, nil
}

func (r *registry) close() error { return r.server.Close() }

// ServeHTTP answers for "/v2/NAME/manifests/…" and "/v2/NAME/blobs/…".
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/v2/"), "/")
	if len(parts) != 3 {
		return // the API's own root: an empty answer
	}
	name, kind, what := parts[0], parts[1], parts[2]
	if !strings.Contains(what, ":") {
		tag, err := os.ReadFile(filepath.Join(r.dir, "tags", name+"-"+path.Base(what)))
		if err != nil {
			http.NotFound(w, req)
			return
		}
		what = string(tag)
	}
	if kind == "manifests" {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
	} else {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	w.Header().Set("Docker-Content-Digest", what)
	http.ServeFile(w, req, filepath.Join(r.dir, "blobs", path.Base(what)))
}

// layerSize says what a layer holds: files of so many bytes, of which a share is
// noise that does not compress.
type layerSize struct {
	files, bytes int
	noise        float64
}

// push makes an image and returns its reference and its size as transferred.
func (r *registry) push(name string, layers []layerSize) (ref string, size int64, err error) {
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	c := ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}}
	c.RootFS.Type = "layers"
	for i, l := range layers {
		d, diff, err := r.layer(uint64(i), l)
		if err != nil {
			return "", 0, err
		}
		m.Layers, c.RootFS.DiffIDs = append(m.Layers, d), append(c.RootFS.DiffIDs, diff)
		size += d.Size
	}
	if m.Config, err = r.document(ocispec.MediaTypeImageConfig, c); err != nil {
		return "", 0, err
	}
	d, err := r.document(ocispec.MediaTypeImageManifest, m)
	if err != nil {
		return "", 0, err
	}
	err = os.WriteFile(filepath.Join(r.dir, "tags", name+"-v1"), []byte(d.Digest), 0o644)
	return r.host + "/" + name + ":v1", size, err
}

func (r *registry) document(mediaType string, v any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	return d, os.WriteFile(filepath.Join(r.dir, "blobs", d.Digest.String()), data, 0o644)
}

// layer writes a layer's blob. The same number gives the same layer.
func (r *registry) layer(number uint64, l layerSize) (d ocispec.Descriptor, diff digest.Digest, err error) {
	f, err := os.CreateTemp(filepath.Join(r.dir, "blobs"), "new-")
	if err != nil {
		return d, "", err
	}
	defer f.Close()
	blob, plain := sha256.New(), sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(f, blob), 1<<20)
	level := gzip.DefaultCompression
	if l.noise == 1 {
		level = gzip.NoCompression
	}
	z, err := gzip.NewWriterLevel(buffered, level)
	if err != nil {
		return d, "", err
	}
	if err := write(tar.NewWriter(io.MultiWriter(z, plain)), number, l); err != nil {
		return d, "", err
	}
	if err := z.Close(); err != nil {
		return d, "", err
	}
	if err := buffered.Flush(); err != nil {
		return d, "", err
	}
	info, err := f.Stat()
	if err != nil {
		return d, "", err
	}
	d = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.NewDigest(digest.SHA256, blob), Size: info.Size()}
	return d, digest.NewDigest(digest.SHA256, plain), os.Rename(f.Name(), filepath.Join(r.dir, "blobs", d.Digest.String()))
}

// write fills an archive with folders of files, like those of a distribution's
// packages in size and number.
func write(w *tar.Writer, number uint64, l layerSize) error {
	noise := rand.NewChaCha8([32]byte{byte(number), byte(number >> 8)})
	text := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog; ", l.bytes/45+1))
	content := make([]byte, l.bytes)
	for i := range l.files {
		if i%20 == 0 {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("layer%d/folder%d/", number, i/20), Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
				return err
			}
		}
		cut := int(float64(l.bytes) * l.noise)
		noise.Read(content[:cut])
		copy(content[cut:], text)
		name := fmt.Sprintf("layer%d/folder%d/file%d", number, i/20, i)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(l.bytes)}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}
