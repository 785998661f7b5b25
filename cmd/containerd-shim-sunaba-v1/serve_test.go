package main

import (
	"os"
	"path/filepath"
	"testing"

	goruntime "github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// What go-runc writes down for a moment lies in the shim's directory.
func TestOwnTempFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", "")
	left := filepath.Join(dir, "runc-process1")
	check(t, os.WriteFile(left, nil, 0o600))
	check(t, ownTempFiles(dir))
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("file of an earlier shim: %v", err)
	}
	// A runtime that shows where the process is that it is to execute.
	script := filepath.Join(dir, "runtime")
	check(t, os.WriteFile(script, []byte("#!/bin/sh\nfor a; do case $a in */runc-process*) echo \"$a\" >"+dir+"/seen;; esac; done\n"), 0o755))
	r := goruntime.Runc{Command: script}
	check(t, r.Exec(t.Context(), "id", specs.Process{}, nil))
	seen, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil || filepath.Dir(string(seen)) != dir {
		t.Errorf("the process was at %q, %v; want it in %q", seen, err, dir)
	}
}
