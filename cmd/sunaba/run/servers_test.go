package run

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Servers that begin and end meanwhile are not taken for killed ones, and a killed one is found
// until somebody removes it.
func TestKilledServers(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	begun := func(dir string) string { return filepath.Join(dir, "root", "lock") }
	serve := func(dir string) *os.File {
		held, err := HoldServer(dir)
		if err == nil {
			err = errors.Join(os.Mkdir(filepath.Join(dir, "root"), 0o755), os.WriteFile(begun(dir), nil, 0o644))
		}
		if err != nil {
			t.Error(err)
		}
		return held
	}
	killed := filepath.Join(temp, "sunaba-7")
	if err := os.Mkdir(killed, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := serve(killed).Close(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 1000 {
			dir, err := os.MkdirTemp("", "sunaba-")
			if err != nil {
				t.Error(err)
				return
			}
			held := serve(dir)
			if err := errors.Join(os.RemoveAll(dir), held.Close()); err != nil {
				t.Error(err)
			}
		}
	}()
	for live := true; live; {
		select {
		case <-ended:
			live = false
		default:
		}
		if found, err := KilledServers("sunaba-[0-9]*", begun); err != nil || !slices.Equal(found, []string{killed}) {
			t.Fatalf("%v, %v", found, err)
		}
	}
	held, err := HoldServer(killed)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := HoldServer(killed); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("held twice: %v", err)
	}
	if _, err := HoldServer(filepath.Join(temp, "sunaba-8")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is gone: %v", err)
	}
	if found, err := KilledServers("sunaba-[0-9]*", begun); err != nil || len(found) != 0 {
		t.Errorf("while it is removed: %v, %v", found, err)
	}
}
