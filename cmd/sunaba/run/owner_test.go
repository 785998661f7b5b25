package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sunaba-project/sunaba/host/durable"
)

// TestSweepOfLocks leaves those of runs that live, and nothing of those that were killed, also
// before anything was written to their lock.
func TestSweepOfLocks(t *testing.T) {
	dir := t.TempDir()
	socket, folder := filepath.Join(dir, "sunaba.sock"), filepath.Join(dir, "runs")
	lives, err := own(socket, "lives", filepath.Join(dir, dirPrefix+"lives"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"killed1", "killed2"} {
		made := filepath.Join(dir, dirPrefix+name)
		if err := errors.Join(os.Mkdir(made, 0o700), os.WriteFile(filepath.Join(folder, name), []byte(made), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "killed3"), nil, 0o600); err != nil {
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

// TestRunsBesideSweeps have locks that stay, whatever moment a sweep or another run's end comes in.
func TestRunsBesideSweeps(t *testing.T) {
	dir := t.TempDir()
	socket, folder := filepath.Join(dir, "sunaba.sock"), filepath.Join(dir, "runs")
	ended, errs := make(chan struct{}), make(chan error, 5)
	for range 2 {
		go func() {
			for {
				select {
				case <-ended:
					errs <- nil
					return
				default:
				}
				if err := sweep(folder, nil); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	var runs sync.WaitGroup
	for k := range 3 {
		runs.Go(func() {
			for i := range 500 {
				if err := runBeside(socket, fmt.Sprint("run", k, "-", i)); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		})
	}
	runs.Wait()
	close(ended)
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of locks is left: %v", err)
	}
}

// runBeside has a lock for a moment, and looks whether it is one.
func runBeside(socket, uid string) error {
	o, err := own(socket, uid, "")
	if err != nil {
		return err
	}
	other, err := os.Open(o.path)
	if err != nil {
		return err
	}
	defer other.Close()
	if locked, err := durable.Locked(other); err != nil || !locked {
		return fmt.Errorf("%s is locked: %v, %v", uid, locked, err)
	}
	return o.release()
}
