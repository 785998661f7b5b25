package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/manifest"
)

const (
	coreModule = "\x00asm\x01\x00\x00\x00"
	component  = "\x00asm\x0d\x00\x01\x00"
)

// write makes files of a folder, by path.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// packed makes an image and reads it again.
func packed(t *testing.T, o Options) (*Image, *layout.Layout) {
	t.Helper()
	spool := t.TempDir()
	o.Spool = spool
	img, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := img.Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if err := img.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(spool); len(left) > 0 || err != nil {
		t.Errorf("Close left %v, %v", left, err)
	}
	l, err := layout.Read(t.Context(), &out, filepath.Join(spool, "read"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if roots := l.Roots(); len(roots) != 1 || roots[0].Name != img.Name() || roots[0].Desc.Digest != img.Digest() {
		t.Fatalf("roots %+v", roots)
	}
	return img, l
}

func read[T any](t *testing.T, l *layout.Layout, d ocispec.Descriptor) T {
	t.Helper()
	data, err := readDocument(t.Context(), l, d)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// listed are the entries of a layer, each on a line.
func listed(t *testing.T, l *layout.Layout, d ocispec.Descriptor) string {
	t.Helper()
	r, err := l.Fetch(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	zip, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return strings.Join(all, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(epoch()) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s has time %s and owner %d:%d %q", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%04o %s %s", h.Mode, h.Name, h.Linkname)))
	}
}

func TestImage(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"app.wasm": coreModule, "site/index.html": "page", "site/a/b.txt": "b", "tool": "#!"})
	if err := errors.Join(os.Symlink("../index.html", filepath.Join(dir, "site/a/link")), os.Symlink("site", filepath.Join(dir, "to-site")),
		os.Chmod(filepath.Join(dir, "tool"), fs.ModeSetuid|0o711)); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Name: "example.org/app", Module: filepath.Join(dir, "app.wasm"),
		Files:  []File{{filepath.Join(dir, "to-site"), "/srv/www"}, {filepath.Join(dir, "tool"), "/bin/tool"}},
		Config: ocispec.ImageConfig{Env: []string{"A=1"}, Cmd: []string{"serve"}, WorkingDir: "/srv"},
	}
	img, l := packed(t, o)
	if img.Name() != "example.org/app:latest" {
		t.Errorf("name %q", img.Name())
	}
	m := read[ocispec.Manifest](t, l, l.Roots()[0].Desc)
	c := read[ocispec.Image](t, l, m.Config)
	if c.OS != "wasip1" || c.Architecture != "wasm" || !slices.Equal(c.Config.Entrypoint, []string{"/app.wasm"}) || !slices.Equal(c.Config.Cmd, []string{"serve"}) ||
		!slices.Equal(c.Config.Env, []string{"A=1"}) || c.Config.WorkingDir != "/srv" || len(c.RootFS.DiffIDs) != 1 || !c.Created.Equal(epoch()) {
		t.Errorf("configuration %+v", c)
	}
	want := strings.Join([]string{
		"0755 app.wasm", "0755 bin/", "0755 bin/tool", "0755 srv/", "0755 srv/www/", "0755 srv/www/a/",
		"0644 srv/www/a/b.txt", "0777 srv/www/a/link ../index.html", "0644 srv/www/index.html",
	}, "\n")
	if got := listed(t, l, m.Layers[0]); got != want {
		t.Errorf("layer has\n%s\nwant\n%s", got, want)
	}
	// Times, and permissions that mean nothing, do not change it.
	for _, name := range []string{"app.wasm", "site/index.html", "site"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)), os.Chmod(path, 0o750&^fs.FileMode(map[bool]int{true: 0, false: 0o110}[name == "site"]))); err != nil {
			t.Fatal(err)
		}
	}
	if again, _ := packed(t, o); again.Digest() != img.Digest() {
		t.Errorf("the same input gives %s and %s", img.Digest(), again.Digest())
	}
	o.Config.Env = nil
	if other, _ := packed(t, o); other.Digest() == img.Digest() {
		t.Error("other input gives the same digest")
	}
}

func TestArtifact(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"app.wasm": component})
	_, l := packed(t, Options{Name: "example.org/app:v1", Module: filepath.Join(dir, "app.wasm"), Artifact: true,
		Component: &manifest.Component{Imports: []string{"wasi:cli/environment@0.2.0"}, Exports: []string{"wasi:cli/run@0.2.0"}}})
	root := l.Roots()[0].Desc
	m := read[ocispec.Manifest](t, l, root)
	if m.Config.MediaType != "application/vnd.wasm.config.v0+json" || len(m.Layers) != 1 || m.Layers[0].MediaType != "application/wasm" ||
		m.Layers[0].Annotations[ocispec.AnnotationTitle] != "app.wasm" || m.Layers[0].Size != int64(len(component)) {
		t.Errorf("manifest %+v", m)
	}
	c := read[wasmConfig](t, l, m.Config)
	if c.OS != "wasip2" || c.LayerDigests[0] != m.Layers[0].Digest || c.Component.Exports[0] != "wasi:cli/run@0.2.0" {
		t.Errorf("configuration %+v", c)
	}
}

// The index has the Linux variant first and the guest last; an image's variants are taken as they
// are.
func TestWithLinux(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"app.wasm": coreModule, "root/usr/bin/app": "ELF", "root/etc/passwd": "root"})
	if err := os.Chmod(filepath.Join(dir, "root/usr/bin/app"), fs.ModeSetuid|0o755); err != nil {
		t.Fatal(err)
	}
	o := Options{Name: "example.org/app:v1", Module: filepath.Join(dir, "app.wasm"), Linux: &Linux{Dir: filepath.Join(dir, "root")}}
	img, l := packed(t, o)
	index := read[ocispec.Index](t, l, l.Roots()[0].Desc)
	if len(index.Manifests) != 2 || index.Manifests[0].Platform.OS != "linux" || index.Manifests[1].Platform.OS != "wasip1" {
		t.Fatalf("index %+v", index)
	}
	m := read[ocispec.Manifest](t, l, index.Manifests[0])
	if c := read[ocispec.Image](t, l, m.Config); !slices.Equal(c.Config.Entrypoint, []string{"/usr/bin/app"}) {
		t.Errorf("configuration %+v", c)
	}
	if got := listed(t, l, m.Layers[0]); !strings.Contains(got, "4755 usr/bin/app") || !strings.Contains(got, "0600 etc/passwd") {
		t.Errorf("layer has\n%s", got)
	}
	o.Linux = &Linux{Layout: l}
	if again, _ := packed(t, o); again.Digest() != img.Digest() {
		t.Errorf("with the variant of an image it is %s, and from the folder %s", again.Digest(), img.Digest())
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"app.wasm": coreModule, "text.wasm": "hello, world", "new.wasm": "\x00asm\x07\x00\x00\x00", "file": "f",
		"removed/.wh.x": "", "root/other": "", "only/core.wasm": coreModule})
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "pipes"), 0o755), syscall.Mkfifo(filepath.Join(dir, "pipes/p"), 0o600)); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_, wasmOnly := packed(t, Options{Name: "a:v1", Module: filepath.Join(dir, "app.wasm")})
	file := func(host, guest string) func(*Options) {
		return func(o *Options) { o.Files = []File{{filepath.Join(dir, host), guest}} }
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"text":          {func(o *Options) { o.Module = filepath.Join(dir, "text.wasm") }, "not a WebAssembly module"},
		"version":       {func(o *Options) { o.Module = filepath.Join(dir, "new.wasm") }, "version 07000000 is not known"},
		"name":          {func(o *Options) { o.Name = "A:-x" }, "parse image reference"},
		"digest":        {func(o *Options) { o.Name = "a@sha256:" + strings.Repeat("0", 64) }, "has a digest"},
		"pipe":          {file("pipes", "/p"), "it is a pipe"},
		"socket":        {file("socket", "/s"), "it is a socket"},
		"relative":      {file("file", "etc/x"), "not absolute and clean"},
		"dots":          {file("file", "/a/../../x"), "not absolute and clean"},
		"root":          {file("file", "/"), "cannot be the root folder"},
		"taken":         {file("file", "/app.wasm"), "has this path already"},
		"below file":    {file("file", "/app.wasm/x"), "is not a folder"},
		"whiteout":      {file("removed", "/r"), ".wh."},
		"workdir":       {func(o *Options) { o.Config.WorkingDir = "srv" }, "working directory"},
		"zero":          {func(o *Options) { o.Config.Env = []string{"A=\x00"} }, "zero byte"},
		"artifact":      {func(o *Options) { o.Artifact, o.Config.Env = true, []string{"A=1"} }, "nothing else"},
		"no program":    {func(o *Options) { o.Linux = &Linux{Dir: filepath.Join(dir, "root")} }, `no program "app"`},
		"no linux":      {func(o *Options) { o.Linux = &Linux{Layout: wasmOnly} }, "has no Linux variant"},
		"special linux": {func(o *Options) { o.Linux = &Linux{Dir: filepath.Join(dir, "pipes")} }, "it is a pipe"},
	} {
		o := Options{Name: "example.org/app:v1", Module: filepath.Join(dir, "app.wasm"), Spool: t.TempDir()}
		c.change(&o)
		_, err := New(t.Context(), o)
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if left, err := os.ReadDir(o.Spool); len(left) > 0 || err != nil {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
	if _, err := New(t.Context(), Options{Name: "a:v1", Module: filepath.Join(dir, "absent.wasm")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent module: %v", err)
	}
}

// Too many files, and too large ones, are refused before any is read.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"app.wasm": coreModule, "large": ""})
	for name, size := range map[string]int64{"large": maxBytes + 1, "app.wasm": 1<<30 + 1} {
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
		_, err := New(t.Context(), Options{Name: "a:v1", Module: filepath.Join(dir, "app.wasm"), Spool: t.TempDir(),
			Files: []File{{filepath.Join(dir, "large"), "/large"}}})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s of %d bytes: %v", name, size, err)
		}
	}
	tr := newTree(plainModes)
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil && i <= maxEntries; i++ {
		err = tr.put(dir, fmt.Sprintf("/%d", i), info)
	}
	if err == nil || !strings.Contains(err.Error(), "more than 200000 files") {
		t.Errorf("too many files: %v", err)
	}
}

func TestParseFile(t *testing.T) {
	if f, err := ParseFile("a:b:/etc/x"); err != nil || f != (File{"a:b", "/etc/x"}) {
		t.Errorf("%+v, %v", f, err)
	}
	for _, text := range []string{"", "a", ":/x", "a:", "a:x", "a:/x/", "a:/../x", "a:/x//y"} {
		if f, err := ParseFile(text); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %+v, %v", text, f, err)
		}
	}
}
