package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sunaba-project/sunaba/host/durable"
)

// TestSweepOfLocks leaves those of runs that live, and nothing of those that were killed, also
// before their lock had its name.
func TestSweepOfLocks(t *testing.T) {
	dir := t.TempDir()
	socket, folder := filepath.Join(dir, "sunaba.sock"), filepath.Join(dir, "runs")
	lives, err := own(socket, "lives", filepath.Join(dir, dirPrefix+"lives"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"killed", unnamed + "1", unnamed + "2"} {
		made := filepath.Join(dir, dirPrefix+name)
		if err := errors.Join(os.Mkdir(made, 0o700), os.WriteFile(filepath.Join(folder, name), []byte(made), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, unnamed+"3"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sweep(folder, nil); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	dirs, _ := filepath.Glob(filepath.Join(dir, dirPrefix+"*"))
	if err != nil || len(left) != 1 || left[0] != filepath.Join(folder, "lives") || len(dirs) != 0 {
		t.Errorf("left %v and %v, %v", left, dirs, err)
	}
	if locked, err := unlocked(lives.path); err != nil || locked {
		t.Errorf("the lock of a run that lives is unlocked: %v, %v", locked, err)
	}
	if err := lives.release(); err != nil {
		t.Error(err)
	}
}

// TestRunsBesideSweeps have locks that stay, whatever moment a sweep comes in.
func TestRunsBesideSweeps(t *testing.T) {
	dir := t.TempDir()
	socket, folder := filepath.Join(dir, "sunaba.sock"), filepath.Join(dir, "runs")
	stop, swept := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				swept <- nil
				return
			default:
			}
			if err := sweep(folder, nil); err != nil {
				swept <- err
				return
			}
		}
	}()
	for i := range 1000 {
		o, err := own(socket, fmt.Sprint("run", i), "")
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.Open(o.path)
		if err != nil {
			t.Fatal(err)
		}
		if locked, err := durable.Locked(other); err != nil || !locked {
			t.Fatalf("locked %v, %v", locked, err)
		}
		other.Close()
		if err := o.release(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-swept; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of locks is left: %v", err)
	}
}
