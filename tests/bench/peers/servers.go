package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/containerd"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// peer is a server that is measured.
type peer struct {
	runtime.RuntimeServiceClient
	runtime.ImageServiceClient

	logs    string
	account *measure.Account
	close   func() error
}

// PodConfig is the configuration of one of its pods.
func (p *peer) PodConfig(namespace, name string) *runtime.PodSandboxConfig {
	c := node.PodConfig(p.logs, namespace, name)
	c.Linux.CgroupParent = p.account.Parent()
	return c
}

// end takes the server away with its pods.
func (p *peer) end(ctx context.Context) error {
	return errors.Join(node.RemovePods(ctx, p), p.close(), p.account.Close())
}

// subject is one kind of pod on one server.
type subject struct {
	title string
	ours  bool
	group string // subjects of one group are compared
	*peer
	measure.Workload
}

// start starts the servers that are here, each in an account of its own, and pulls what they run.
func (b *bench) start(ctx context.Context, registry *oci.Registry) (servers []*peer, err error) {
	if err := errors.Join(hide(), b.unify()); err != nil {
		return nil, err
	}
	add := func(name string, start func(dir string, p *peer) error) (*peer, error) {
		p := &peer{}
		if p.account, err = measure.NewAccount(fmt.Sprintf("sunaba-peers-%d-%s", os.Getpid(), name)); err != nil {
			return nil, err
		}
		dir := filepath.Join(b.dir, name)
		err := memory(filepath.Join(dir, "state"))
		if err == nil {
			err = p.account.In(func() error { return start(dir, p) })
		}
		if err != nil {
			return nil, errors.Join(err, p.account.Close())
		}
		servers = append(servers, p)
		return p, nil
	}
	pause, err := pauseImage(ctx, registry)
	if err != nil {
		return nil, err
	}
	own, err := add("s", func(dir string, p *peer) error {
		config := fmt.Sprintf("[network]\nconf_dir = %q\n", filepath.Join(dir, "cni"))
		if b.crun != "" {
			config += fmt.Sprintf("[handlers.runc]\ntype = \"oci\"\ndefault = true\n[handlers.wasm]\ntype = \"wasm\"\n[handlers.crun]\ntype = \"oci\"\nbinary = %q\n", b.crun)
		}
		n, err := node.Start(ctx, node.Options{
			Bin: b.bin, Dir: dir, Config: config, Env: []string{"PATH=" + b.containerd + ":" + os.Getenv("PATH")}, // the same runc
		})
		if err != nil {
			return err
		}
		p.RuntimeServiceClient, p.ImageServiceClient, p.logs = n.RuntimeServiceClient, n.ImageServiceClient, n.Logs
		p.close = func() error { return forcedBy(n.Close()) }
		return nil
	})
	if err != nil {
		return servers, err
	}
	release, err := containerd.Installed(ctx, b.containerd)
	if err != nil {
		return servers, err
	}
	runtimes := []containerd.Runtime{{Name: "runc", Type: "io.containerd.runc.v2"}, {Name: "sunaba-wasm", Type: "io.containerd.sunaba.v1"}}
	if b.crun != "" {
		runtimes = append(runtimes, containerd.Runtime{Name: "crun", Type: "io.containerd.runc.v2", Options: fmt.Sprintf("BinaryName = %q", b.crun)})
	}
	path := []string{b.bin}
	if b.wasmtime != "" {
		path = append(path, filepath.Dir(b.wasmtime))
		runtimes = append(runtimes, containerd.Runtime{Name: "wasmtime", Type: "io.containerd.wasmtime.v1"})
	}
	other, err := add("c", func(dir string, p *peer) error {
		d, err := containerd.Start(ctx, containerd.Options{
			Release: release, Dir: dir, Path: path, Sandbox: pause, CNI: b.containerd, Default: "runc", Runtimes: runtimes,
		})
		if err != nil {
			return err
		}
		p.RuntimeServiceClient, p.ImageServiceClient, p.logs = d.RuntimeServiceClient, d.ImageServiceClient, d.Logs
		p.close = func() error { return forcedBy(d.Close()) }
		return nil
	})
	if err != nil {
		return servers, err
	}
	var third *peer
	if b.crio != "" {
		third, err = add("o", func(dir string, p *peer) error {
			all := map[string]string{"runc": filepath.Join(b.containerd, "runc")}
			if b.crun != "" {
				all["crun"] = b.crun
			}
			c, err := startCRIO(ctx, dir, b.crio, b.containerd, pause, all)
			if err != nil {
				return err
			}
			p.RuntimeServiceClient, p.ImageServiceClient = runtime.NewRuntimeServiceClient(c.conn), runtime.NewImageServiceClient(c.conn)
			p.logs, p.close = filepath.Join(dir, "logs"), c.close
			return nil
		})
		if err != nil {
			return servers, err
		}
	}
	busybox, guest, err := b.images(ctx, registry, servers, third)
	if err != nil {
		return servers, err
	}
	return servers, b.choose(own, other, third, "containerd "+release.Name, busybox, guest)
}

// choose says what is measured: in each group the pods of our server first.
func (b *bench) choose(own, containerd, crio *peer, name, busybox, guest string) error {
	want, err := regexp.Compile(b.of)
	if err != nil {
		return err
	}
	add := func(group, title string, p *peer, w measure.Workload) {
		if p != nil && want.MatchString(title) {
			b.subjects = append(b.subjects, &subject{title, p == own && title == "sunaba, "+group, group, p, w})
		}
	}
	for _, handler := range []string{"runc", "crun"} {
		if handler == "crun" && b.crun == "" {
			continue
		}
		w := measure.Workload{Handler: handler, Image: busybox, Command: []string{"/bin/sleep", "1000"}}
		add(handler, "sunaba, "+handler, own, w)
		add(handler, name+", "+handler, containerd, w)
		add(handler, "CRI-O, "+handler, crio, w)
	}
	w := measure.Workload{Handler: "wasm", Image: guest, Args: []string{"idle"}}
	add("wasm", "sunaba, wasm", own, w)
	w.Handler = "sunaba-wasm"
	add("wasm", name+", our shim", containerd, w)
	if w.Handler = "wasmtime"; b.wasmtime != "" {
		add("wasm", name+", wasmtime's shim", containerd, w)
	}
	if len(b.subjects) == 0 {
		return fmt.Errorf("nothing that is here is called %q", b.of)
	}
	return nil
}

// unify hides the cgroup v2 hierarchy beside the controllers of version 1, if both are here: crun
// does not work where it sees both. Accounts find it in a folder that nothing removes.
func (b *bench) unify() error {
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err != nil {
		return nil
	}
	dir := filepath.Join(hidden[0], "unified")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount %q: %w", dir, err)
	}
	return node.HideUnified(filepath.Join(b.dir, "cgroup"))
}

// forcedBy is an error if a server left something behind that the program did not make for it.
func forcedBy(forced []string, err error) error {
	forced = slices.DeleteFunc(forced, func(what string) bool {
		return strings.HasPrefix(what, "mount on ") && strings.HasSuffix(what, "/state")
	})
	if len(forced) > 0 {
		err = errors.Join(err, fmt.Errorf("left behind: %q", forced))
	}
	return err
}

func pauseImage(ctx context.Context, registry *oci.Registry) (string, error) {
	program, err := oci.BuildGo(ctx, "tests/critest/pause", oci.Host())
	if err != nil {
		return "", err
	}
	image, err := oci.Packed(oci.Host(), oci.Program("pause", program))
	if err != nil {
		return "", err
	}
	return registry.Push(ctx, "pause:3.9", image)
}

// images pushes what runs in the pods and has every server pull it, but for the guest and crio.
func (b *bench) images(ctx context.Context, registry *oci.Registry, servers []*peer, crio *peer) (busybox, guest string, err error) {
	linux, err := oci.Busybox(oci.Host(), v1.Config{})
	if err != nil {
		return "", "", err
	}
	module, err := oci.PackedC(ctx, "examples/c/guest.c")
	if err != nil {
		return "", "", err
	}
	for _, i := range []struct {
		to    *string
		path  string
		image v1.Image
	}{{&busybox, "busybox:1", linux}, {&guest, "guest:1", module}} {
		if *i.to, err = registry.Push(ctx, i.path, i.image); err != nil {
			return "", "", err
		}
		for _, p := range servers {
			if i.to == &guest && p == crio {
				continue // it has no handler for guests
			}
			if _, err := p.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: *i.to}}); err != nil {
				return "", "", fmt.Errorf("pull %q: %w", *i.to, err)
			}
		}
	}
	return busybox, guest, nil
}
