package disk

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Abort turns the file system read-only, as ext4 does by itself after an error of its disk: also
// what is open for writing is not written any more. It is writable again after Repair.
func (d *Image) Abort() error {
	if out, err := exec.Command("mount", "-o", "remount,abort", d.Dir).CombinedOutput(); err != nil {
		return fmt.Errorf("turn %q read-only: %w: %s", d.Dir, err, out)
	}
	return nil
}

// Repair checks the file system as a start of the machine does, and mounts it again. Nothing may
// use it.
func (d *Image) Repair() error {
	if err := unix.Unmount(d.Dir, 0); err != nil {
		return fmt.Errorf("unmount disk: %w", err)
	}
	out, err := exec.Command("e2fsck", "-p", d.File).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // it has repaired what there was
		err = nil
	}
	if err != nil {
		return fmt.Errorf("e2fsck: %w: %s", err, out)
	}
	return d.mount()
}

// Cover makes a folder read-only for all that open files in it by their path, until writable is
// called. What is open for writing is still written.
func Cover(t *testing.T, dir string) (writable func()) {
	t.Helper()
	err := cover(dir)
	for since := time.Now(); err == unix.EBUSY && time.Since(since) < time.Minute; err = cover(dir) {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatalf("make %q read-only: %v", dir, err)
	}
	return func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("make %q writable: %v", dir, err)
		}
	}
}

// cover is Cover once. It is EBUSY if a file was opened for writing between the two mounts.
func cover(dir string) error {
	err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, "")
	if err != nil {
		return err
	}
	err = unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
	return err
}
