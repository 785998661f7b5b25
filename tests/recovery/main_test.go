// Package recovery kills the daemon, and shims, in the middle of what they do, and looks at what
// becomes of the pods.
//
// # Points
//
// A point is one kill: an RPC is sent, and the process gets SIGKILL just before the Nth system call
// that others can see of those that it makes for that RPC (tests/killer). N comes from the seed and
// from how many steps the RPC was seen to take, so that the points of one RPC are spread over all
// of it. Then the daemon is started again, and everything that holds of a node that never crashed
// must hold: what ran runs on with its log and its exit code, what was asked for is done or undone,
// asking again works, `sunaba check` finds nothing, and when the pod is removed nothing is left.
//
//	go test -v ./tests/recovery -seed 7 -only runc/StartContainer
//
// Each worker has a daemon of its own, in a network namespace of its own.
package recovery

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

var (
	seed  = flag.Uint64("seed", 1, "where the points lie")
	every = flag.Bool("every", false, "kill before every single step of every life, whatever the seed")
	most  = flag.Int("most", 0, "at most so many points of each RPC and handler; 0 for all")
	only  = flag.String("only", "", "only the lives whose name begins so: HANDLER/RPC")
)

func TestMain(m *testing.M) {
	killer.Serve()
	flag.Parse()
	os.Exit(node.Ground{
		Name: "recovery",
		Outside: func(folder string) error {
			plugin := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(folder, "bin", "tiny"), "../../criserver/network/testdata/tiny")
			if out, err := plugin.CombinedOutput(); err != nil {
				return fmt.Errorf("build the CNI plugin: %w\n%s", err, out)
			}
			return nil
		},
		Inside: oci.WithRegistry(&world.registry, prepare, m.Run),
	}.Enter())
}

// world is what all tests share: nothing in it changes after TestMain.
var world struct {
	folder, bin string
	registry    *oci.Registry
	module      []byte
	busybox     string
	guest       string
}

func prepare(folder string) error {
	world.folder, world.bin = folder, filepath.Join(folder, "bin")
	ctx := context.Background()
	var err error
	if world.module, err = oci.BuildC(ctx, "../criwasm/testdata/guest.c"); err != nil {
		return err
	}
	if world.busybox, err = push(ctx, "runc", "shared"); err != nil {
		return err
	}
	world.guest, err = push(ctx, "wasm", "shared")
	return err
}

// push stores an image for a handler whose bytes no other name has.
func push(ctx context.Context, handler, name string) (string, error) {
	var image v1.Image
	var err error
	if handler == "wasm" {
		image, err = oci.Packed(oci.Wasip1, oci.Program("guest.wasm", oci.Renamed(world.module, name)), oci.Dir("tmp", 0o1777))
	} else {
		image, err = oci.Busybox(oci.Host(), v1.Config{}, oci.Text("name", name))
	}
	if err != nil {
		return "", err
	}
	return world.registry.Push(ctx, "recovery/"+handler+":"+name, image)
}
