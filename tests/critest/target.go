package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sunaba-project/sunaba/tests/node"
)

// Names of the servers: sunaba and containerd with our shim are tested, containerd with its own is
// there to be compared with.
const (
	sunabaName     = "sunaba"
	pluginName     = "shim"
	containerdName = "containerd"
)

// target starts a server for one variant, with everything it needs below a folder of its own in
// work.
type target func(ctx context.Context, v variant, mirror, work string) (*server, error)

// server is a running CRI server.
type server struct {
	name, socket string
	// close takes the server away with its pods, and keeps its log in out. What was left behind is
	// an error.
	close func(ctx context.Context, out string) error
}

// sunaba is the target that is tested.
func (s *settings) sunaba(ctx context.Context, v variant, mirror, work string) (*server, error) {
	dir := filepath.Join(work, v.name)
	n, err := node.Start(ctx, node.Options{Bin: s.bin, Dir: dir, Config: configuration(s.handlers(v), dir, mirror), Args: []string{"--log-level", "debug"}})
	if err != nil {
		return nil, err
	}
	return &server{name: sunabaName, socket: n.Socket, close: func(ctx context.Context, out string) error {
		removed := n.RemovePods(ctx)
		kept := os.WriteFile(filepath.Join(out, "daemon.log"), []byte(n.DaemonLog()+"\n"), 0o644)
		forced, closed := n.Close()
		if len(forced) > 0 {
			closed = errors.Join(closed, fmt.Errorf("left behind: %s", strings.Join(forced, ", ")))
		}
		return errors.Join(removed, kept, closed)
	}}, nil
}

// handlers is a variant's table, with another OCI runtime if one was named.
func (s *settings) handlers(v variant) string {
	const oci = "type = \"oci\"\n"
	if s.runtime == "" || v.crun {
		return v.handlers
	}
	table := cmp.Or(v.handlers, "[handlers.runc]\n"+oci+"default = true\n")
	return strings.Replace(table, oci, oci+fmt.Sprintf("binary = %q\n", s.runtime), 1)
}

// configuration is a node's with its registries mirrored.
func configuration(handlers, dir, mirror string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[images.mirrors]\n")
	for _, host := range mirrored {
		fmt.Fprintf(&b, "%q = [%q]\n", host, "http://"+mirror)
	}
	fmt.Fprintf(&b, "[network]\nconf_dir = %q\n", filepath.Join(dir, "cni"))
	return b.String() + handlers
}
