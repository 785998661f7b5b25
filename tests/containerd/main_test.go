package containerd

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

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// inside is set in the environment of the process that runs in the new namespaces.
const inside = "SUNABA_CONTAINERD_FOLDER"

// tools is the folder of containerd 2.4 and the CNI plugins, cache that of Debian's containerd.
const (
	tools = "../tools-containerd/bin"
	cache = "../../.cache/containerd"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(agentFolder); folder != "" {
		if err := runAgent(folder); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if folder := os.Getenv(inside); folder != "" {
		os.Exit(runInside(m, folder))
	}
	os.Exit(runOutside())
}

// runOutside gets and builds what the tests need, while there is a network, and runs them in new
// namespaces.
func runOutside() int {
	if os.Geteuid() != 0 {
		fmt.Println("containerd needs root: it makes namespaces, mounts and cgroups")
		return 1
	}
	folder, err := os.MkdirTemp("", "sn-") // short: sockets lie in it
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(folder)
	if err := provide(folder); err != nil {
		fmt.Println(err)
		return 1
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), inside+"="+folder)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = again.Run()
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

func provide(folder string) error {
	if err := os.Chmod(folder, 0o711); err != nil { // containers of other users pass through it
		return err
	}
	if _, err := Debian(context.Background(), cache+"/debian"); err != nil {
		return err
	}
	cmd := exec.Command("make", "-s", "-C", "../..", "tests/tools-containerd/bin/containerd")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", cmd.Args, err, out)
	}
	return binaries.Provide(filepath.Join(folder, "bin"), binaries.Shim)
}

// world is what all tests share: nothing in it changes after TestMain.
var world struct {
	folder, bin string
	releases    []Release
	plugins     string // CNI
	registry    *oci.Registry

	pause    string
	busybox  string // linux, of this machine
	index    string // the batch example: linux and wasip1/wasm in one index, with provenance
	server   string // the greeter example as an image of platform wasip1/wasm, no index
	wasip1   string // examples/c, an image of platform wasip1/wasm, no index
	wasi     string // the same with platform wasi/wasm
	wasip2   string // oci.Component, an image of platform wasip2/wasm
	asLinux  string // the same module as the entrypoint of an image that says linux
	artifact string // a WebAssembly artifact, which has no layers that containerd could unpack
}

func runInside(m *testing.M, folder string) int {
	if err := prepare(folder); err != nil {
		fmt.Println("prepare the tests:", err)
		return 1
	}
	defer world.registry.Close()
	return m.Run()
}

func prepare(folder string) error {
	world.folder, world.bin = folder, filepath.Join(folder, "bin")
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return err
	}
	// Folders that shims of older releases and OCI runtimes share with the whole machine are the
	// tests' own.
	for _, dir := range []string{"/run/containerd", "/run/sunaba", "/var/lib/sunaba"} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=711"); err != nil {
			return err
		}
	}
	if err := install(); err != nil {
		return err
	}
	debian, err := Debian(context.Background(), cache+"/debian")
	if err != nil {
		return err
	}
	newest, err := Installed(context.Background(), tools)
	if err != nil {
		return err
	}
	world.releases = []Release{debian, newest}
	for i := range world.releases {
		if world.releases[i].Bin, err = filepath.Abs(world.releases[i].Bin); err != nil {
			return err
		}
	}
	world.plugins = world.releases[1].Bin
	if world.registry, err = oci.Serve("127.0.0.1:0"); err != nil {
		return err
	}
	return pushImages(context.Background())
}

// install puts the shim and its options where the examples have them, in folders of the tests' own.
func install() error {
	for _, dir := range []string{"/usr/local/bin", "/etc/containerd"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{
		filepath.Join(world.bin, "containerd-shim-sunaba-v1"): "/usr/local/bin/containerd-shim-sunaba-v1",
		"../../examples/containerd/sunaba.toml":               "/etc/containerd/sunaba.toml",
	} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func pushImages(ctx context.Context) error {
	push := func(to *string, path string, image v1.Image, err error) error {
		if err == nil {
			*to, err = world.registry.Push(ctx, path, image)
		}
		return err
	}
	const gorge = "#!/bin/sh\nsh -c 'x=a; while true; do x=$x$x; done'\necho over\ncat\n" // what it runs is killed, and it goes on
	image, err := oci.Busybox(oci.Host(), v1.Config{}, oci.Program("bin/gorge", []byte(gorge)),
		oci.Program("bin/sized", []byte("#!/bin/sh\nread line\nexec /bin/busybox stty size\n")))
	if err := push(&world.busybox, "busybox:1", image, err); err != nil {
		return err
	}
	program, err := oci.BuildGo(ctx, "../critest/pause", oci.Host())
	if err != nil {
		return err
	}
	image, err = oci.Packed(oci.Host(), oci.Program("pause", program))
	if err := push(&world.pause, "pause:3.9", image, err); err != nil {
		return err
	}
	index, err := oci.ExampleIndex(ctx, "../../examples/batch", "batch")
	if err != nil {
		return err
	}
	if world.index, err = world.registry.PushIndex(ctx, "batch:v1", index); err != nil {
		return err
	}
	module, err := oci.BuildGo(ctx, "../../examples/greeter", oci.Wasip1)
	if err != nil {
		return err
	}
	image, err = oci.Packed(oci.Wasip1, oci.Program("greeter.wasm", module))
	if err := push(&world.server, "greeter:wasm", image, err); err != nil {
		return err
	}
	image, err = oci.Packed(oci.Wasip2, oci.Program("app.wasm", oci.Component()))
	if err := push(&world.wasip2, "component:v1", image, err); err != nil {
		return err
	}
	module, err = oci.BuildC(ctx, "../../examples/c/guest.c")
	if err != nil {
		return err
	}
	for path, kind := range map[string]struct {
		to       *string
		platform v1.Platform
	}{
		"guest:wasip1": {&world.wasip1, oci.Wasip1},
		"guest:wasi":   {&world.wasi, v1.Platform{OS: "wasi", Architecture: "wasm"}},
		"guest:linux":  {&world.asLinux, oci.Host()},
	} {
		image, err := oci.Packed(kind.platform, oci.Program("guest.wasm", module))
		if err := push(kind.to, path, image, err); err != nil {
			return err
		}
	}
	image, err = oci.Artifact(module)
	return push(&world.artifact, "artifact:1", image, err)
}
