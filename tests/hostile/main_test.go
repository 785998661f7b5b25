// Package hostile runs nodes against what images, registries, pod authors and bad luck may do to
// them: each test is an attack or an accident that once worked. Every test has a node of its own
// and ends with a look at what is left on the machine.
//
// The tests run as root in a network namespace and a mount namespace of their own.
package hostile

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

func TestMain(m *testing.M) {
	os.Exit(node.Ground{Name: "hostile", Tests: m.Run, Inside: oci.WithRegistry(&world.registry, prepare, node.InTurns(m.Run))}.Enter())
}

// world is what all tests share: nothing in it changes after TestMain.
var world struct {
	folder, bin string
	registry    *oci.Registry
	busybox     string // a Linux image
	guest       string // examples/c as an image of platform wasip1/wasm
}

func prepare(folder string) error {
	ctx := context.Background()
	world.folder, world.bin = folder, filepath.Join(folder, "bin")
	if err := node.HideUnified(filepath.Join(folder, "cgroup")); err != nil {
		return err
	}
	busybox, err := oci.Busybox(oci.Host(), v1.Config{})
	if err != nil {
		return err
	}
	if world.busybox, err = world.registry.Push(ctx, "busybox:1", busybox); err != nil {
		return err
	}
	guest, err := oci.PackedC(ctx, "../../examples/c/guest.c")
	if err != nil {
		return err
	}
	world.guest, err = world.registry.Push(ctx, "guest:1", guest)
	return err
}
