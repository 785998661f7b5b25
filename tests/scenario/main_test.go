// Package scenario runs whole pods: the real binaries, real runc and crun, real images from a
// registry on loopback, and a CRI client where the kubelet would be. Every scenario has a daemon of
// its own and ends with a look at what is left on the machine.
//
// The tests run as root in a network namespace and a mount namespace of their own, so that every
// link, rule and mount that they see is theirs.
package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

func TestMain(m *testing.M) {
	os.Exit(node.Ground{
		Name: "scenario",
		Outside: func(string) error {
			if out, err := exec.Command("make", "-s", "-C", "../..", "tools").CombinedOutput(); err != nil {
				return fmt.Errorf("build crictl: %w\n%s", err, out)
			}
			return nil
		},
		Inside: func(folder string) int { return runInside(m, folder) },
	}.Enter())
}

// world is what all scenarios share: nothing in it changes after TestMain.
var world struct {
	folder, bin string
	registry    *oci.Registry

	busybox   string // linux/amd64 and linux/arm64, provenance
	busybox2  string // the same by another name
	batch     string // the job: linux/amd64, linux/arm64, wasip1/wasm, provenance
	greeter   string // the server, the same platforms
	guest     string // examples/c as an image of platform wasip1/wasm
	artifact  string // the same module as a WebAssembly artifact
	asLinux   string // the same module as the entrypoint of an image that says linux
	twoLayers string // an artifact with two modules, which is refused
	component string // an artifact with a component, which is refused for now
	hostile   string // wasip1/wasm with symbolic links that lead out of the image
	broken    string // wasip1/wasm with an entrypoint that begins like a module and is none
}

func runInside(m *testing.M, folder string) int {
	if err := prepare(folder); err != nil {
		fmt.Println("prepare the scenarios:", err)
		return 1
	}
	defer world.registry.Close()
	return m.Run()
}

func prepare(folder string) error {
	world.folder, world.bin = folder, filepath.Join(folder, "bin")
	if err := node.HideUnified(filepath.Join(folder, "cgroup")); err != nil {
		return err
	}
	var err error
	if world.registry, err = oci.Serve("127.0.0.1:0"); err != nil {
		return err
	}
	return pushImages(context.Background())
}

// pushImages builds the images and stores them in the registry.
func pushImages(ctx context.Context) error {
	module, err := oci.BuildC(ctx, must(filepath.Abs("../../examples/c/guest.c")))
	if err != nil {
		return err
	}
	push := func(ref *string, path string, image v1.Image, err error) error {
		if err != nil {
			return fmt.Errorf("build %q: %w", path, err)
		}
		*ref, err = world.registry.Push(ctx, path, image)
		return err
	}
	pushIndex := func(ref *string, path string, index v1.ImageIndex, err error) error {
		if err != nil {
			return fmt.Errorf("build %q: %w", path, err)
		}
		*ref, err = world.registry.PushIndex(ctx, path, index)
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
	if err := pushIndex(&world.busybox, "busybox:1", index, err); err != nil {
		return err
	}
	if err := pushIndex(&world.busybox2, "busybox:2", index, nil); err != nil {
		return err
	}
	for _, example := range []struct {
		name string
		ref  *string
	}{{"batch", &world.batch}, {"greeter", &world.greeter}} {
		index, err := oci.ExampleIndex(ctx, "../../examples/"+example.name, example.name)
		if err := pushIndex(example.ref, example.name+":v1", index, err); err != nil {
			return err
		}
	}
	image, err := guest(oci.Wasip1)
	if err := push(&world.guest, "guest:v1", image, err); err != nil {
		return err
	}
	image, err = guest(oci.Host())
	if err := push(&world.asLinux, "guest:linux", image, err); err != nil {
		return err
	}
	image, err = oci.Artifact(module)
	if err := push(&world.artifact, "guest:artifact", image, err); err != nil {
		return err
	}
	image, err = oci.Artifact(module, append([]byte(nil), "\x00asm\x01\x00\x00\x00"...))
	if err := push(&world.twoLayers, "guest:two", image, err); err != nil {
		return err
	}
	image, err = oci.Artifact([]byte("\x00asm\x0d\x00\x01\x00"))
	if err := push(&world.component, "guest:component", image, err); err != nil {
		return err
	}
	image, err = guest(oci.Wasip1,
		oci.Symlink("absolute", "/etc/hostname"), oci.Symlink("relative", "../../../../../../../../etc/hostname"),
		oci.Symlink("folder", "/etc"), oci.Symlink("up", ".."), oci.Symlink("through", "/proc/self/root/etc/hostname"))
	if err := push(&world.hostile, "guest:hostile", image, err); err != nil {
		return err
	}
	layer, err := oci.Layer(oci.Program("guest.wasm", []byte("\x00asm\x01\x00\x00\x00this is no section")))
	if err != nil {
		return err
	}
	image, err = oci.Image(oci.Wasip1, v1.Config{Entrypoint: []string{"/guest.wasm"}}, layer)
	return push(&world.broken, "guest:broken", image, err)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
