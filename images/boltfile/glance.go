package boltfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// tries is how often a copy that was caught in the middle of a change is taken anew.
const tries = 5

// Glance calls read with the path of a copy of a database, again with a new copy when it ends with
// an error. It takes no lock and changes nothing: another process may have the database open. The
// copy is in memory, so a full disk is no hindrance, and gone when Read returns.
//
// # Errors
//
// os.ErrNotExist if there is no such file; ErrDataLoss where reading panics, as a database torn in
// two makes its reader do.
func Glance(file string, read func(copied string) error) error {
	var err error
	for range tries {
		if err = once(file, read); err == nil || errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

func once(file string, read func(string) error) (err error) {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := unix.MemfdCreate("sunaba-glance", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make file in memory: %w", err)
	}
	copied := os.NewFile(uintptr(fd), "sunaba-glance")
	defer copied.Close()
	if _, err := io.Copy(copied, in); err != nil {
		return fmt.Errorf("copy %q: %w", file, err)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read %q: %v: %w", file, r, errdefs.ErrDataLoss)
		}
	}()
	name := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := Check(name); err != nil {
		return fmt.Errorf("read %q: %w", file, err)
	}
	return read(name)
}
