package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// images runs `sunaba images`.
func (b *wasmBench) images(want int, args ...string) string {
	b.t.Helper()
	var out bytes.Buffer
	all := append(append([]string{"sunaba", "images", args[0]}, b.places...), args[1:]...)
	if code := run(all, &out, &out); code != want {
		b.t.Fatalf("%q: exit code %d, want %d\n%s", all, code, want, &out)
	}
	return out.String()
}

// kind is what `images inspect` says of the variant for a handler.
func (b *wasmBench) inspected(ref, handler string) (v struct {
	ID, Platform, Kind, Module, Manifest string
	Component                            struct{ Exports []string }
}) {
	b.t.Helper()
	if err := json.Unmarshal([]byte(b.images(0, "inspect", "--handler", handler, ref)), &v); err != nil {
		b.t.Fatal(err)
	}
	return v
}

// A module is packed, stored and run, with a server and without one.
func TestImagesPack(t *testing.T) {
	for _, served := range []bool{false, true} {
		b := newWasmBench(t)
		if served {
			b.serveImages()
		}
		hello, probe, component := b.file("hello.wasm", cGuest(t, "hello")), b.file("probe.wasm", cGuest(t, "probe")), b.file("component.wasm", oci.Component())
		if err := os.MkdirAll(filepath.Join(b.dir, "linux/bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.file("linux/bin/hello", []byte("\x7fELF"))
		b.file("page", []byte("content\n"))

		has(t, b.images(0, "pack", hello, "example.org/hello:v1", "--file", filepath.Join(b.dir, "page")+":/srv/page", "--env", "A=1,2", "--cmd", "one"),
			"example.org/hello:v1: compile, ", " KiB\n", "wasip1/wasm", "rootfs")
		has(t, b.images(0, "inspect", "example.org/hello:v1"), `"/hello.wasm"`, `"one"`, `"A=1,2"`)
		has(t, first(b.call(3, "run", "--env", "CODE=3", "example.org/hello:v1", "a")), "hello a\n")
		has(t, first(b.call(0, "compile", "example.org/hello:v1")), "was there already") // since it was packed

		has(t, b.images(0, "pack", component, "example.org/component:v1", "--format", "artifact"), "wasip2/wasm", "module")
		if c := b.inspected("example.org/component:v1", "wasm").Component; len(c.Exports) == 0 || !strings.HasPrefix(c.Exports[0], "wasi:cli/run@0.2") {
			t.Errorf("component %+v", c)
		}
		has(t, first(b.call(0, "run", "example.org/component:v1", "say", "two", "words")), "two words\n")

		has(t, b.images(0, "import", probe), "localhost/probe:local", "wasip1/wasm")
		has(t, b.images(0, "import", probe, "example.org/probe:v2"), "example.org/probe:v2")
		has(t, b.images(1, "import", "--name", "a:v1", probe, "b:v1"), "given twice")

		// Both worlds, of a folder, and of an image that is present.
		both := filepath.Join(b.dir, "both.tar")
		has(t, b.images(0, "pack", hello, "example.org/both:v1", "--with-linux", filepath.Join(b.dir, "linux"), "-o", both), "example.org/both:v1@sha256:", both)
		has(t, b.images(0, "import", both), "wasip1/wasm", "linux/") // both variants
		guest, linux := b.inspected("example.org/both:v1", "wasm"), b.inspected("example.org/both:v1", "runc")
		if guest.Platform != "wasip1/wasm" || !strings.HasPrefix(linux.Platform, "linux/") {
			t.Errorf("platforms %q and %q", guest.Platform, linux.Platform)
		}
		has(t, b.images(1, "pack", probe, "example.org/more:v1", "--with-linux", "example.org/absent:v1"), "not found")
		has(t, b.images(1, "pack", probe, "example.org/more:v1", "--with-linux", "example.org/hello:v1"), "hello:v1")

		has(t, b.images(1, "pack", filepath.Join(b.dir, "page"), "a:v1"), "not a WebAssembly module")
		has(t, b.images(1, "pack", b.file("lacking.wasm", cGuest(t, "lacking")), "a:v1"), `"env"."launch_missiles" is missing`)
		has(t, b.images(1, "pack", hello, "a:v1", "--format", "zip"), "neither image nor artifact")
		has(t, b.images(1, "pack", hello, "a:v1", "--file", "x:y"), "absolute and clean")
		has(t, b.images(1, "pack", hello, "a:v1", "--linux-entrypoint", "x"), "--with-linux")
		has(t, b.images(1, "pack", hello), "want a module and a name")
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "sunaba-pack-*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}

// With layers that are kept, the Linux variant of an image that is present is taken over as it is.
func TestImagesPackWithLinuxImage(t *testing.T) {
	b := newWasmBench(t)
	if f, err := os.OpenFile(b.places[5], os.O_APPEND|os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	} else if _, err := f.WriteString("[images]\nkeep_layers = true\n"); err != nil {
		t.Fatal(err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	hello := b.file("hello.wasm", cGuest(t, "hello"))
	if err := os.MkdirAll(filepath.Join(b.dir, "linux/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.file("linux/bin/hello", []byte("\x7fELF"))
	b.images(0, "pack", hello, "example.org/both:v1", "--with-linux", filepath.Join(b.dir, "linux"))
	b.images(0, "pack", b.file("probe.wasm", cGuest(t, "probe")), "example.org/more:v1", "--with-linux", "example.org/both:v1")
	was, is := b.inspected("example.org/both:v1", "runc"), b.inspected("example.org/more:v1", "runc")
	if was.ID != is.ID || was.Manifest != is.Manifest {
		t.Errorf("the Linux variant was %+v and is %+v", was, is)
	}
	if guest := b.inspected("example.org/more:v1", "wasm"); guest.Platform != "wasip1/wasm" {
		t.Errorf("platform %q", guest.Platform)
	}
}

// What pack stores is pushed, with a server and without one, and another node pulls and runs the
// same; what is not pushed says why.
func TestImagesPush(t *testing.T) {
	for _, served := range []bool{false, true} {
		registry, err := oci.Serve("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer registry.Close()
		b, other := newWasmBench(t), newWasmBench(t)
		if served {
			b.serveImages()
		}
		hello, ref := b.file("hello.wasm", cGuest(t, "hello")), registry.Host+"/hello:v1"
		b.images(0, "pack", hello, "example.org/hello:v1")
		digest := b.inspected("example.org/hello:v1", "wasm").Manifest
		has(t, b.images(0, "push", "example.org/hello:v1", ref), "example.org/hello:v1: push, ", "pushed "+ref+"@"+digest+": 2 blobs sent (", "0 mounted, 0 present already")
		if told := b.images(0, "push", "example.org/hello:v1", ref, "-o", "name"); !strings.HasSuffix(told, "\n"+ref+"@"+digest+"\n") {
			t.Errorf("-o name prints %q", told)
		}
		has(t, b.images(0, "push", "example.org/hello:v1", "docker://"+ref, "-o", "json"), `"digest": "`+digest+`"`, `"sent": 0`, `"present": 2`)
		other.images(0, "pull", ref)
		if got := other.inspected(ref, "wasm").Manifest; got != digest {
			t.Errorf("pulled %s, pushed %s", got, digest)
		}
		has(t, first(other.call(0, "run", ref, "a")), "hello a\n")

		b.images(0, "tag", "example.org/hello:v1", registry.Host+"/copy:v1")
		has(t, b.images(0, "push", registry.Host+"/copy:v1"), "pushed "+registry.Host+"/copy:v1@"+digest)
		if told := b.images(0, "push", "-q", registry.Host+"/copy:v1"); told != registry.Host+"/copy:v1\n" {
			t.Errorf("-q: %q", told)
		}
		b.images(0, "tag", registry.Host+"/copy:v1", registry.Host+"/copy:v2", registry.Host+"/copied:v1")
		if told := b.images(0, "push", "-q", "--all-tags", registry.Host+"/copy"); told != registry.Host+"/copy:v1\n"+registry.Host+"/copy:v2\n" {
			t.Errorf("--all-tags: %q", told)
		}
		var list []images.Pushed
		_, told, _ := strings.Cut(b.images(0, "push", "-a", registry.Host+"/copy", "-o", "json"), "\n[") // behind the progress
		if err := json.Unmarshal([]byte("["+told), &list); err != nil || len(list) != 2 {
			t.Errorf("--all-tags as JSON: %+v, %v", list, err)
		}
		b.images(1, "push", "-q", registry.Host+"/copy:v1", "-o", "name")
		for name, want := range map[string]string{registry.Host + "/copy:v1": "without tag", registry.Host + "/copy@" + digest: "without tag", registry.Host + "/none": "no tag of it"} {
			has(t, b.images(1, "push", "-a", name), want)
		}
		has(t, b.images(1, "push", "-a", registry.Host+"/copy", "x"), "no second name")
		has(t, b.images(1, "push", "example.org/absent:v1"), `push image "example.org/absent:v1": not found`)
		has(t, b.images(1, "push", "example.org/hello:v1", "127.0.0.1:1/x"), "RegistryUnavailable: push image")
		has(t, b.images(1, "push", "example.org/hello:v1", "a:-x"), "a:-x")
		has(t, b.images(1, "push", b.inspected("example.org/hello:v1", "wasm").ID), "give one")
		has(t, b.images(1, "push"), "want an image and perhaps a name")
		has(t, b.images(1, "push", "a", "b", "c"), "not 3 arguments")
		has(t, b.images(1, "push", "a", "-o", "wide"), "table, name, json or yaml")
	}
}

// What pack writes is pushed to a registry by another program and pulled from there: the digest is
// the one that pack told.
func TestImagesPackPushed(t *testing.T) {
	registry, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	b := newWasmBench(t)
	hello := b.file("hello.wasm", cGuest(t, "hello"))
	ref := registry.Host + "/hello:v1"
	to, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"image", "artifact"} {
		folder := filepath.Join(b.dir, format)
		told := b.images(0, "pack", hello, ref, "--format", format, "--output", folder+"/")
		index, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		m, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		img, err := index.Image(m.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(to, img); err != nil {
			t.Fatal(err)
		}
		b.images(0, "pull", ref)
		has(t, told, "@"+b.inspected(ref, "wasm").Manifest)
		has(t, first(b.call(0, "run", ref, "a")), "hello a\n")
	}
}
