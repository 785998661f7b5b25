// Package stage holds what the packages of scenarios share: images in a registry on loopback, and a
// node whose end is a look at what it leaves.
package stage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// World is what all scenarios of a test binary share: nothing in it changes after its TestMain.
type World struct {
	// Folder is the binary's, Bin the one of the project's binaries, Tools that of crictl.
	Folder, Bin, Tools string
	Registry           *oci.Registry

	Busybox           string // linux/amd64 and linux/arm64, provenance
	Busybox2          string // the same by another name
	Batch             string // the job: linux/amd64, linux/arm64, wasip1/wasm, provenance
	Greeter           string // the server, the same platforms
	Guest             string // examples/c as an image of platform wasip1/wasm
	Artifact          string // the same module as a WebAssembly artifact
	AsLinux           string // the same module as the entrypoint of an image that says linux
	TwoLayers         string // an artifact with two modules, which is refused
	Component         string // wasip2/wasm: oci.Component, and examples/c beside it
	ComponentArtifact string // the same component as a WebAssembly artifact
	HTTPComponent     string // an artifact: oci.HTTPComponent
	NoCommand         string // an artifact that is a component without exports
	Hostile           string // wasip1/wasm with symbolic links that lead out of the image
	Broken            string // wasip1/wasm with an entrypoint that starts like a module and is not one

	examples string
	modules  modules
}

// Main runs a package's scenarios as root in a network and a mount namespace of their own, so that
// every link, rule and mount that they see is theirs. name is a short word; tests is the folder
// tests of the project, as seen from the package's.
// subtests are those of node.Ground.
func Main(m *testing.M, name, tests string, world *World, subtests map[string][]string) int {
	if signal.Ignored(syscall.SIGHUP) { // under nohup, and what is started here would inherit that
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return node.Ground{
		Name: name, Tests: m.Run, Subtests: subtests,
		Outside: func(string) error {
			if out, err := exec.Command("make", "-s", "-C", filepath.Join(tests, ".."), "tools").CombinedOutput(); err != nil {
				return fmt.Errorf("build crictl: %w\n%s", err, out)
			}
			return nil
		},
		Inside: oci.WithRegistry(&world.Registry, func(folder string) error { return world.prepare(folder, tests) }, node.InTurns(m.Run)),
	}.Enter()
}

func (w *World) prepare(folder, tests string) error {
	tests, err := filepath.Abs(tests)
	if err != nil {
		return err
	}
	w.modules = modules(cmp.Or(binaries.SharedFolder("modules"), filepath.Join(filepath.Dir(folder), "modules")))
	w.Folder, w.Bin, w.Tools, w.examples = folder, filepath.Join(folder, "bin"), filepath.Join(tests, "tools/bin"), filepath.Join(tests, "../examples")
	if err := node.HideUnified(filepath.Join(folder, "cgroup")); err != nil {
		return err
	}
	if err := w.push(context.Background()); err != nil {
		return err
	}
	return w.compileGo(context.Background())
}

// compileGo compiles the examples in Go, which takes seconds, for all packages of a run: a node
// that removes such an image has nothing left for the next node.
func (w *World) compileGo(ctx context.Context) error {
	if binaries.SharedFolder("modules") == "" {
		return nil
	}
	for name, ref := range map[string]string{"batch": w.Batch, "greeter": w.Greeter} {
		module, err := oci.BuildGo(ctx, filepath.Join(w.examples, name), oci.Wasip1)
		if err != nil {
			return err
		}
		file := filepath.Join(w.Folder, name+".wasm")
		if err := os.WriteFile(file, module, 0o600); err != nil {
			return err
		}
		compile := exec.CommandContext(ctx, filepath.Join(w.Bin, binaries.Shim), "compile", "-cache", w.modules.image(ref), file)
		if out, err := compile.CombinedOutput(); err != nil {
			return fmt.Errorf("compile %q: %w\n%s", name, err, out)
		}
		// Need stores the same image by this name.
		if err := linkEntries(w.modules.image(ref), w.modules.image(w.Registry.Host+"/sunaba/"+name+":v1")); err != nil {
			return err
		}
	}
	return nil
}

// push builds the images and stores them in the registry.
func (w *World) push(ctx context.Context) error {
	module, err := oci.BuildC(ctx, filepath.Join(w.examples, "c/guest.c"))
	if err != nil {
		return err
	}
	push := func(ref *string, path string, image v1.Image, err error) error {
		if err != nil {
			return fmt.Errorf("build %q: %w", path, err)
		}
		*ref, err = w.Registry.Push(ctx, path, image)
		return err
	}
	pushIndex := func(ref *string, path string, index v1.ImageIndex, err error) error {
		if err != nil {
			return fmt.Errorf("build %q: %w", path, err)
		}
		*ref, err = w.Registry.PushIndex(ctx, path, index)
		return err
	}
	guest := func(platform v1.Platform, files ...oci.File) (v1.Image, error) {
		layer, err := oci.Layer(append([]oci.File{oci.Program("guest.wasm", module), oci.Dir("etc", 0o755), oci.Text("etc/greeting", "hello from the image\n")}, files...)...)
		if err != nil {
			return nil, err
		}
		return oci.Image(platform, v1.Config{Entrypoint: []string{"/guest.wasm"}, Env: []string{"FROM_IMAGE=yes"}}, layer)
	}
	busybox, err := oci.Busybox(oci.LinuxAMD64, v1.Config{})
	if err != nil {
		return err
	}
	busyboxARM, err := oci.Busybox(oci.LinuxARM64, v1.Config{})
	if err != nil {
		return err
	}
	index, err := oci.Index(oci.Variant{Platform: oci.LinuxAMD64, Image: busybox}, oci.Variant{Platform: oci.LinuxARM64, Image: busyboxARM})
	if err := pushIndex(&w.Busybox, "busybox:1", index, err); err != nil {
		return err
	}
	if err := pushIndex(&w.Busybox2, "busybox:2", index, nil); err != nil {
		return err
	}
	for _, example := range []struct {
		name string
		ref  *string
	}{{"batch", &w.Batch}, {"greeter", &w.Greeter}} {
		index, err := oci.ExampleIndex(ctx, filepath.Join(w.examples, example.name), example.name)
		if err := pushIndex(example.ref, example.name+":v1", index, err); err != nil {
			return err
		}
	}
	image, err := guest(oci.Wasip1)
	if err := push(&w.Guest, "guest:v1", image, err); err != nil {
		return err
	}
	image, err = guest(oci.Host())
	if err := push(&w.AsLinux, "guest:linux", image, err); err != nil {
		return err
	}
	image, err = oci.Artifact(module)
	if err := push(&w.Artifact, "guest:artifact", image, err); err != nil {
		return err
	}
	image, err = oci.Artifact(module, append([]byte(nil), "\x00asm\x01\x00\x00\x00"...))
	if err := push(&w.TwoLayers, "guest:two", image, err); err != nil {
		return err
	}
	image, err = oci.Artifact([]byte("\x00asm\x0d\x00\x01\x00"))
	if err := push(&w.NoCommand, "guest:library", image, err); err != nil {
		return err
	}
	image, err = oci.Packed(oci.Wasip2, oci.Program("app.wasm", oci.Component()), oci.Program("guest.wasm", module))
	if err := push(&w.Component, "component:v1", image, err); err != nil {
		return err
	}
	image, err = oci.Artifact(oci.Component())
	if err := push(&w.ComponentArtifact, "component:artifact", image, err); err != nil {
		return err
	}
	image, err = oci.Artifact(oci.HTTPComponent())
	if err := push(&w.HTTPComponent, "component:http", image, err); err != nil {
		return err
	}
	image, err = guest(oci.Wasip1,
		oci.Symlink("absolute", "/etc/hostname"), oci.Symlink("relative", "../../../../../../../../etc/hostname"),
		oci.Symlink("folder", "/etc"), oci.Symlink("up", ".."), oci.Symlink("through", "/proc/self/root/etc/hostname"))
	if err := push(&w.Hostile, "guest:hostile", image, err); err != nil {
		return err
	}
	image, err = oci.Packed(oci.Wasip1, oci.Program("guest.wasm", []byte("\x00asm\x01\x00\x00\x00this is no section")))
	return push(&w.Broken, "guest:broken", image, err)
}

// Need stores examples in the registry. Where a compiler is missing the test is skipped.
func (w *World) Need(t *testing.T, names ...string) {
	t.Helper()
	for _, e := range oci.Examples() {
		if !slices.Contains(names, e.Name) {
			continue
		}
		if _, err := e.Push(t.Context(), w.Registry, w.examples); errors.Is(err, oci.ErrNoCompiler) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Manifest is a file of examples/ that takes its images from the registry of these tests.
func (w *World) Manifest(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.examples, path))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(data, []byte("localhost:5000/"), []byte(w.Registry.Host+"/"))
}
