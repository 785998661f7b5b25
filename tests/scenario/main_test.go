// Package scenario runs whole pods: the real binaries, real runc and crun, real images from a registry
// on loopback, and a CRI client where the kubelet would be. Every scenario has a daemon of its own and
// ends with a look at what is left on the machine.
//
// The tests run as root in a network namespace and a mount namespace of their own, so that every link,
// rule and mount that they see is theirs.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// inside is set in the environment of the process that runs in the new namespaces.
const inside = "SUNABA_SCENARIO_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(inside); folder != "" {
		os.Exit(runInside(m, folder))
	}
	os.Exit(runOutside())
}

// runOutside builds what the scenarios need, while there is a network, and runs the tests again inside
// new namespaces.
func runOutside() int {
	if os.Geteuid() != 0 {
		fmt.Println("scenarios need root: they make namespaces, mounts and cgroups")
		return 1
	}
	folder, err := os.MkdirTemp("", "sunaba-scenario-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(folder)
	if err := buildBinaries(filepath.Join(folder, "bin")); err != nil {
		fmt.Println(err)
		return 1
	}
	if out, err := exec.Command("make", "-s", "-C", "../..", "tools").CombinedOutput(); err != nil {
		fmt.Printf("build crictl: %v\n%s", err, out)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"="+folder)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func buildBinaries(bin string) error {
	for _, args := range [][]string{
		{"-o", bin + "/sunaba", "../../cmd/sunaba"},
		{"-tags", "no_grpc", "-o", bin + "/containerd-shim-sunaba-v1", "../../cmd/containerd-shim-sunaba-v1"},
	} {
		cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -X main.version=scenario"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %q: %w\n%s", args, err, out)
		}
	}
	return nil
}

// world is what all scenarios share: nothing in it changes after TestMain.
var world struct {
	folder, bin string
	registry    *oci.Registry

	busybox   string // linux/amd64 and linux/arm64, provenance
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
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	if err := hideUnified(filepath.Join(folder, "cgroup")); err != nil {
		return fmt.Errorf("hide the unified hierarchy: %w", err)
	}
	if world.registry, err = oci.Serve("127.0.0.1:0"); err != nil {
		return err
	}
	return pushImages(context.Background())
}

// hideUnified shows the version 1 controllers without the version 2 mount beside them: Debian's crun 1.8 does
// not work while it sees both. Elsewhere it does nothing.
func hideUnified(temp string) error {
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err != nil {
		return nil
	}
	controllers, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		return err
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", temp, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, controller := range controllers {
		if controller.Name() == "unified" {
			continue
		}
		from, to := filepath.Join("/sys/fs/cgroup", controller.Name()), filepath.Join(temp, controller.Name())
		if target, err := os.Readlink(from); err == nil {
			if err := os.Symlink(target, to); err != nil {
				return err
			}
			continue
		}
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return unix.Mount(temp, "/sys/fs/cgroup", "", unix.MS_MOVE, "")
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
