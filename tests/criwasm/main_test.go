// Package criwasm is a conformance suite for the wasm handler: what critest asks of Linux
// containers, asked of guests through the same CRI client. It prints how many specs passed, failed
// and were skipped; `make criwasm` runs it.
//
// The suite runs as root in a network namespace and a mount namespace of its own.
package criwasm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

func TestMain(m *testing.M) {
	os.Exit(node.Ground{Name: "criwasm", Inside: oci.WithRegistry(&world.registry, prepare, func() int {
		code := m.Run()
		fmt.Printf("criwasm: %d passed, %d failed, %d skipped\n", world.passed, world.failed, world.skipped)
		return code
	})}.Enter())
}

// world is what all specs share: nothing in it changes after TestMain, but the counts.
var world struct {
	folder   string
	registry *oci.Registry
	guest    string // the guest as an index of wasip1/wasm and linux/amd64
	artifact string // the same module as an artifact
	cmd      string // an image with Cmd and WorkingDir
	broken   string // an image whose entrypoint begins as a module and is none
	busybox  string // a Linux image

	mu                      sync.Mutex
	passed, failed, skipped int
}

func prepare(folder string) error {
	world.folder = folder
	ctx := context.Background()
	source, err := filepath.Abs("testdata/guest.c")
	if err != nil {
		return err
	}
	module, err := oci.BuildC(ctx, source)
	if err != nil {
		return err
	}
	return push(ctx, module)
}

// push makes the images and stores them in the registry.
func push(ctx context.Context, module []byte) error {
	image := func(config v1.Config, program []byte) (v1.Image, error) {
		layer, err := oci.Layer(
			oci.Program("guest.wasm", program), oci.Dir("etc", 0o755), oci.Text("etc/greeting", "hello from the image\n"),
			oci.Dir("tmp", 0o1777), oci.Dir("work", 0o755), oci.Text("script", "#!/bin/sh\n"))
		if err != nil {
			return nil, err
		}
		return oci.Image(oci.Wasip1, config, layer)
	}
	guest, err := image(v1.Config{Entrypoint: []string{"/guest.wasm"}, Env: []string{"FROM_IMAGE=yes", "BOTH=image"}}, module)
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
	if world.guest, err = world.registry.PushIndex(ctx, "suite/guest:1", index); err != nil {
		return err
	}
	artifact, err := oci.Artifact(module)
	if err != nil {
		return err
	}
	cmd, err := image(v1.Config{Entrypoint: []string{"/guest.wasm"}, Cmd: []string{"args", "from", "image"}, WorkingDir: "/work"}, module)
	if err != nil {
		return err
	}
	broken, err := image(v1.Config{Entrypoint: []string{"/guest.wasm"}}, []byte("\x00asm\x01\x00\x00\x00this is no section"))
	if err != nil {
		return err
	}
	for _, p := range []struct {
		ref   *string
		path  string
		image v1.Image
	}{
		{&world.artifact, "suite/artifact:1", artifact}, {&world.cmd, "suite/cmd:1", cmd},
		{&world.broken, "suite/broken:1", broken}, {&world.busybox, "suite/busybox:1", busybox},
	} {
		if *p.ref, err = world.registry.Push(ctx, p.path, p.image); err != nil {
			return err
		}
	}
	return nil
}
