package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
)

// Two runs never have one range of user ids; what a killed run leaves is free again.
func TestLockRange(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "users")
	one, err := identity.LockRange(folder, 65536, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := identity.LockRange(folder, 65536, ""); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("a range that another run has: %v", err)
	}
	two, err := identity.LockRange(folder, 131072, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil { // as when its process is killed
		t.Fatal(err)
	}
	again, err := identity.LockRange(folder, 65536, "")
	if err != nil {
		t.Fatalf("the range of a run that was killed: %v", err)
	}
	for _, f := range []*os.File{again, two} {
		if err := durable.RemoveLock(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder of locks stays: %v", err)
	}
}
