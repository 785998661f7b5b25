package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/guest"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// TestMain makes the test binary have the faces of the shim that guests need, and the program
// itself, to be signalled.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guest":
			os.Exit(guest.Main(os.Args[2:]))
		case "compile":
			os.Exit(compile.Main(os.Args[2:]))
		case "sunaba":
			os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(m.Run())
}

// wasmBench is a node of its own: folders, a configuration whose shim is this binary, and guests.
type wasmBench struct {
	t      *testing.T
	dir    string
	places []string // flags
}

func newWasmBench(t *testing.T) *wasmBench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test runs guests: run it as root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &wasmBench{t: t, dir: t.TempDir()}
	file := filepath.Join(b.dir, "config.toml")
	// Cgroups of our own making: there is no systemd where most tests run.
	if err := os.WriteFile(file, []byte("shim = \""+self+"\"\ncgroup_driver = \"cgroupfs\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.dir, "root"), 0o711); err != nil {
		t.Fatal(err)
	}
	b.places = []string{"--root", filepath.Join(b.dir, "root"), "--state", filepath.Join(b.dir, "state"), "--config", file}
	return b
}

// file keeps a module.
func (b *wasmBench) file(name string, data []byte) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// cGuest is a guest in C of the tests of shim/wasm, built once.
func cGuest(t *testing.T, name string) []byte {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if data := builds.done[name]; data != nil {
		return data
	}
	data, err := oci.BuildC(t.Context(), filepath.Join("../../shim/wasm/engine/testdata", name+".c"))
	if err != nil {
		t.Fatal(err)
	}
	builds.done[name] = data
	return data
}

var builds = struct {
	sync.Mutex
	done map[string][]byte
}{done: map[string][]byte{}}

// command is `sunaba wasm` with the node's flags.
func (b *wasmBench) command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	all := append([]string{"sunaba", "wasm", args[0]}, b.places...)
	return exec.Command(self, append(all, args[1:]...)...)
}

// call runs a command to its end.
func (b *wasmBench) call(want int, args ...string) (stdout, stderr string) {
	b.t.Helper()
	cmd := b.command(args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // the exit code says it all
	if code := cmd.ProcessState.ExitCode(); code != want {
		b.t.Fatalf("%q: exit code %d, want %d\n%s%s", args, code, want, &out, &errOut)
	}
	return out.String(), errOut.String()
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func TestWasmInspectAndCompileFiles(t *testing.T) {
	b := newWasmBench(t)
	hello := b.file("hello.wasm", cGuest(t, "hello"))
	out, _ := b.call(0, "inspect", hello)
	has(t, out, "core module", "start module  taken", "imports       from wasi_snapshot_preview1", "  fd_write (i32 i32 i32 i32) -> i32: WASI preview 1", "runs here")
	has(t, first(b.call(0, "compile", hello)), "was there already") // what was inspected is kept
	if err := os.RemoveAll(filepath.Join(b.dir, "root", "wasm")); err != nil {
		t.Fatal(err)
	}
	out, _ = b.call(0, "inspect", "--no-compile", hello)
	has(t, out, "start module  not known before it is compiled")

	out, _ = b.call(0, "compile", hello)
	has(t, out, hello, "compiled in ")
	out, _ = b.call(0, "compile", "--json", hello)
	var compiled []struct {
		Name, Digest, Entry string
		Size                int64
		Present             bool
	}
	if err := json.Unmarshal([]byte(out), &compiled); err != nil || len(compiled) != 1 {
		t.Fatalf("%s: %v", out, err)
	}
	if c := compiled[0]; !c.Present || c.Size < 1000 || c.Name != hello {
		t.Errorf("got %+v", c)
	}
	if _, err := os.Stat(compiled[0].Entry); err != nil {
		t.Error(err)
	}
	has(t, first(b.call(0, "inspect", hello)), compiled[0].Digest, "start module  taken") // of the entry that is there
	has(t, first(b.call(0, "run", hello)), "hello\n")
	if entries, err := filepath.Glob(filepath.Join(b.dir, "root", "wasm", "*-*")); err != nil || len(entries) != 1 || entries[0] != compiled[0].Entry {
		t.Errorf("the cache has %q, %v; it was made for %q", entries, err, compiled[0].Entry)
	}

	// Rewritten or not are two entries, and the switch of the command counts before the
	// configuration's.
	out, _ = b.call(0, "compile", "--json", "--optimize-go", hello)
	rewritten := compiled[0].Entry
	if err := json.Unmarshal([]byte(out), &compiled); err != nil || len(compiled) != 1 || compiled[0].Present || compiled[0].Entry == rewritten {
		t.Errorf("compiled with the switch: %s, %v", out, err)
	}
	has(t, first(b.call(0, "run", "--optimize-go", hello)), "hello\n")

	lacking := b.file("lacking.wasm", cGuest(t, "lacking"))
	has(t, first(b.call(1, "inspect", lacking)), `import "env"."launch_missiles" is missing: there is no host module "env"`)
	invalid := b.file("invalid.wasm", []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x0a\x01\x06_start\x00\x00\x0a\x05\x01\x03\x00\x6a\x0b"))
	has(t, first(b.call(1, "inspect", invalid)), "module is not valid")
	has(t, first(b.call(0, "inspect", "--no-compile", invalid)), "its sections are in order; its code was not looked at")
	component := b.file("component.wasm", []byte("\x00asm\x0d\x00\x01\x00"))
	out, _ = b.call(1, "inspect", "--json", component)
	var report struct {
		Source  struct{ Name, Kind string }
		Kind    string
		Refused []string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Kind != "component" || report.Source.Kind != "file" || len(report.Refused) != 1 {
		t.Errorf("got %s, %v", out, err)
	}
	out, errOut := b.call(1, "compile", component, hello, lacking)
	has(t, errOut, "component.wasm", "component")
	has(t, out, "hello.wasm", "was there already", "lacking.wasm", "in the cache") // what it imports is no matter here
	has(t, second(b.call(1, "inspect", "nowhere.wasm")), "neither a file nor an image")
	has(t, second(b.call(1, "inspect")), "want one file or image")
	has(t, second(b.call(1, "compile")), "want a file or an image")
	has(t, second(b.call(1, "inspect", b.dir)), "not a regular file")
}

func first(a, _ string) string  { return a }
func second(_, b string) string { return b }

// TestWasmInspectImages looks at modules of images, in a server's store and in one without a
// server.
func TestWasmInspectImages(t *testing.T) {
	registry, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	image := func(platform v1.Platform, program []byte) v1.Image {
		t.Helper()
		layer, err := oci.Layer(oci.Program("bin/app", program))
		if err != nil {
			t.Fatal(err)
		}
		img, err := oci.Image(platform, v1.Config{Entrypoint: []string{"app"}, Env: []string{"PATH=/bin"}}, layer)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	index, err := oci.Index(oci.Variant{Platform: oci.Host(), Image: image(oci.Host(), []byte("\x7fELF"))},
		oci.Variant{Platform: oci.Wasip1, Image: image(oci.Wasip1, cGuest(t, "hello"))})
	if err != nil {
		t.Fatal(err)
	}
	both, err := registry.PushIndex(t.Context(), "both:v1", index)
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := oci.Artifact(cGuest(t, "lacking"))
	if err != nil {
		t.Fatal(err)
	}
	lacking, err := registry.Push(t.Context(), "lacking:v1", artifact)
	if err != nil {
		t.Fatal(err)
	}
	for _, served := range []bool{false, true} {
		b := newWasmBench(t)
		if served {
			b.serveImages()
		}
		for _, ref := range []string{both, lacking} {
			var out bytes.Buffer
			if code := run(append(append([]string{"sunaba", "images", "pull"}, b.places...), ref), &out, &out); code != 0 {
				t.Fatalf("pull %s: %s", ref, &out)
			}
		}
		has(t, first(b.call(0, "inspect", both)), "image with a module as its command sha256:", "(wasip1/wasm), app", "runs here")
		has(t, first(b.call(1, "inspect", lacking)), "artifact sha256:", "(wasip1/wasm)", `"env"."launch_missiles" is missing`)
		has(t, second(b.call(1, "inspect", "--handler", "runc", both)), "brings no WebAssembly module")
		has(t, first(b.call(0, "compile", both, lacking)), both, lacking, "was there already") // since they were pulled
		has(t, first(b.call(3, "run", "--env", "CODE=3", both, "a")), "hello a\n")
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "sunaba-module-*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}

// serveImages is the part of a server that has the images.
func (b *wasmBench) serveImages() {
	b.t.Helper()
	conf, err := readConfig(b.places[5])
	if err != nil {
		b.t.Fatal(err)
	}
	handlers, err := conf.handlers("runc")
	if err != nil {
		b.t.Fatal(err)
	}
	d := &daemon{places: places{root: b.places[1], state: b.places[3]}, logger: slog.New(slog.DiscardHandler)}
	if err := d.claim(); err != nil {
		b.t.Fatal(err)
	}
	store, _, err := openImages(conf, d.places, handlers, conf.Shim, nil, d.logger)
	if err != nil {
		b.t.Fatal(err)
	}
	d.close = append(d.close, store.Close)
	server, err := control.Listen(d.places.control(), store, d.logger)
	if err != nil {
		b.t.Fatal(err)
	}
	d.close = append(d.close, server.Close)
	b.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.t.Error(err)
		}
	})
}
