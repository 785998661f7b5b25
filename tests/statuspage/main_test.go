// Package statuspage looks at the status page in a headless Chromium: a real server with real pods,
// and what a person sees, what a screen reader is told, and where the keyboard leads.
//
// With `-args -shots FOLDER` the pictures of docs/status-page.md are written to a folder.
package statuspage

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

// program is what drives Chromium, from the project's root.
const program = "tests/tools-browser/bin/browser"

// world is what TestMain prepares.
var world struct {
	folder   string
	registry *oci.Registry
}

func TestMain(m *testing.M) {
	os.Exit(node.Ground{
		Name: "statuspage",
		Outside: func(string) error {
			if out, err := exec.Command("make", "-s", "-C", "../..", program).CombinedOutput(); err != nil {
				return fmt.Errorf("build %s: %w\n%s", program, err, out)
			}
			return nil
		},
		Inside: oci.WithRegistry(&world.registry, prepare, m.Run),
	}.Enter())
}

// prepare stores an image with variants for both handlers, and one for Linux only.
func prepare(folder string) error {
	world.folder = folder
	ctx := context.Background()
	source, err := filepath.Abs("../../examples/c/guest.c")
	if err != nil {
		return err
	}
	guest, err := oci.PackedC(ctx, source)
	if err != nil {
		return err
	}
	busybox, err := oci.Busybox(oci.Host(), v1.Config{})
	if err != nil {
		return err
	}
	index, err := oci.Index(oci.Variant{Platform: oci.Host(), Image: busybox}, oci.Variant{Platform: oci.Wasip1, Image: guest})
	if err != nil {
		return err
	}
	if _, err := world.registry.PushIndex(ctx, "shop/catalog:v1", index); err != nil {
		return err
	}
	_, err = world.registry.Push(ctx, "shop/web:v1", busybox)
	return err
}
