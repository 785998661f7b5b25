package wasm

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

func TestCheckOfShims(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := (Node{Shim: self}).Check(); err != nil {
		t.Errorf("a shim of the same build: %v", err)
	}
	script := filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Node{Shim: script}).Check(); err != nil {
		t.Errorf("a shim that does not tell: %v", err)
	}
}

func TestCheckEngines(t *testing.T) {
	for _, c := range []struct {
		own, theirs string
		fits        bool
	}{{"v1.12.0", "v1.12.0", true}, {"v1.12.0", "", true}, {"", "v1.12.0", true}, {"v1.12.0", "v1.11.0", false}} {
		err := checkEngines("/usr/bin/shim", c.own, c.theirs)
		if c.fits && err != nil || !c.fits && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), c.theirs)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	stock := debug.Module{Path: wazeroversion.Path, Version: "v1.12.0"}
	fork := stock
	fork.Replace = &debug.Module{Path: "../wazero", Version: "(devel)"}
	in := func(m *debug.Module) string { return wazeroversion.In(&debug.BuildInfo{Deps: []*debug.Module{m}}) }
	if err := checkEngines("/usr/bin/shim", in(&stock), in(&fork)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a fork with the same number: %v", err)
	}
}
