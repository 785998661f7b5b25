package wasm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/cgroups"
)

// A run that was killed had the same process id once: what it left must not limit this one.
func TestSweepRemovesOwnName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes a cgroup: run it as root")
	}
	dir := filepath.Join("/sys/fs/cgroup", runName(os.Getpid()))
	if !cgroups.IsCgroup2UnifiedMode() {
		dir = filepath.Join("/sys/fs/cgroup/memory", runName(os.Getpid()))
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := sweep(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(dir); !os.IsNotExist(err) {
		t.Errorf("the cgroup was still there (%v)", err)
	}
}
