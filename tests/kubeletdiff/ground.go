package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/tests/kubelet"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// What both sides have in common. nodeName is also the suffix that a kubelet gives to names of
// static pods.
const (
	nodeName   = "till-4"
	nodeIP     = "192.0.2.10"
	clusterDNS = "198.51.100.53"
	domain     = "cluster.test"
	// crashLoopMax is short, so that the delays of a crash loop are seen in seconds.
	crashLoopMax = "4s"
	resolvConf   = "nameserver 192.0.2.53\nsearch example.test lab.example.test\noptions timeout:2\n"
)

// ground is the machine that both sides run on, one after the other.
type ground struct {
	*settings
	work     string // folder of the two nodes
	registry *oci.Registry
}

// newGround prepares the namespaces: a network with an address and a default route, a resolv.conf
// and a /var/log of their own, and a registry with the images.
func newGround(ctx context.Context, s *settings) (*ground, error) {
	if err := errors.Join(node.Loopback(), kubelet.Uplink(nodeIP)); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "sunaba-kubeletdiff-")
	if err != nil {
		return nil, err
	}
	g := &ground{settings: s, work: work}
	if err := errors.Join(os.Chmod(work, 0o711), g.hide()); err != nil {
		return nil, err
	}
	if g.registry, err = oci.Serve("127.0.0.1:0"); err != nil {
		return nil, err
	}
	busybox, err := oci.Busybox(oci.Host(), v1.Config{Env: []string{"PATH=/bin", "FROM_IMAGE=yes"}})
	if err != nil {
		return nil, err
	}
	app, err := oci.Busybox(oci.Host(), v1.Config{
		User: "1000:1000", WorkingDir: "/tmp", Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{"id; pwd; exec sleep 1000"}, StopSignal: "SIGUSR1",
	})
	if err != nil {
		return nil, err
	}
	named, err := oci.Busybox(oci.Host(), v1.Config{User: "nobody", Cmd: []string{"sleep", "1000"}})
	if err != nil {
		return nil, err
	}
	program, err := healthProgram()
	if err != nil {
		return nil, err
	}
	serving, err := oci.Busybox(oci.Host(), v1.Config{Entrypoint: []string{"/" + program.Name, healthCommand}}, program)
	if err != nil {
		return nil, err
	}
	for path, image := range map[string]v1.Image{"busybox:1": busybox, "app:1": app, "named:1": named, "health:1": serving} {
		if _, err := g.registry.Push(ctx, path, image); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// hide puts files and folders of this command over those of the machine that both sides read or
// write at fixed places.
func (g *ground) hide() error {
	resolv := filepath.Join(g.work, "resolv.conf")
	if err := os.WriteFile(resolv, []byte(resolvConf), 0o644); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return err
	}
	if err := unix.Mount(resolv, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount over %s: %w", target, err)
	}
	return kubelet.Hide("/var/log", "/var/lib/kubelet")
}

func (g *ground) close() {
	g.registry.Close()
	// The nodes have removed their folders.
	os.RemoveAll(g.work)
}
