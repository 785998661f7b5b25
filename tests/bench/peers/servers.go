package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
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

// start starts the servers, each in an account of its own, and pulls what they run.
func (b *bench) start(ctx context.Context, registry *oci.Registry) (servers []*peer, err error) {
	if err := hide(); err != nil {
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
		n, err := node.Start(ctx, node.Options{
			Bin: b.bin, Dir: dir, Config: fmt.Sprintf("[network]\nconf_dir = %q\n", filepath.Join(dir, "cni")),
			Env: []string{"PATH=" + b.containerd + ":" + os.Getenv("PATH")}, // the same runc
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
	other, err := add("c", func(dir string, p *peer) error {
		d, err := containerd.Start(ctx, containerd.Options{
			Release: release, Dir: dir, Path: []string{b.bin}, Sandbox: pause, CNI: b.containerd, Default: "runc",
			Runtimes: []containerd.Runtime{{Name: "runc", Type: "io.containerd.runc.v2"}, {Name: "sunaba-wasm", Type: "io.containerd.sunaba.v1"}},
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
	busybox, guest, err := b.images(ctx, registry, servers)
	if err != nil {
		return servers, err
	}
	sleep := []string{"/bin/sleep", "1000"}
	b.subjects = []*subject{
		{"sunaba, runc", true, "runc", own, measure.Workload{Handler: "runc", Image: busybox, Command: sleep}},
		{"containerd " + release.Name + ", runc", false, "runc", other, measure.Workload{Handler: "runc", Image: busybox, Command: sleep}},
		{"sunaba, wasm", true, "wasm", own, measure.Workload{Handler: "wasm", Image: guest, Args: []string{"idle"}}},
		{"containerd " + release.Name + ", our shim", false, "wasm", other, measure.Workload{Handler: "sunaba-wasm", Image: guest, Args: []string{"idle"}}},
	}
	return servers, nil
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

// images pushes what runs in the pods and has every server pull it.
func (b *bench) images(ctx context.Context, registry *oci.Registry, servers []*peer) (busybox, guest string, err error) {
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
			if _, err := p.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: *i.to}}); err != nil {
				return "", "", fmt.Errorf("pull %q: %w", *i.to, err)
			}
		}
	}
	return busybox, guest, nil
}
