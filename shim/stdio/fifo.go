package stdio

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openFIFOReader opens a FIFO to read from without waiting for a writer.
func openFIFOReader(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open FIFO: %w", err)
	}
	return f, nil
}

// openFIFOWriter opens a FIFO to write to. It waits until somebody reads, so that a short-lived
// process's output is not lost before its reader comes, and with hold it then holds a reading end
// itself, so that a reader that closes its end (a restarting daemon) costs the process neither a
// signal nor a byte.
func openFIFOWriter(ctx context.Context, path string, hold bool) (sink, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open FIFO: %w", err)
	}
	if info.Mode()&os.ModeNamedPipe == 0 {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) // a plain file or device is taken as it is
		if err != nil {
			return nil, err
		}
		return &fileSink{File: f}, nil
	}
	w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		w, err = waitReader(ctx, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open FIFO: %w", err)
	}
	if !hold {
		return &fileSink{File: w}, nil
	}
	r, err := openFIFOReader(path)
	if err != nil {
		w.Close()
		return nil, err
	}
	return &fileSink{File: w, beside: r}, nil
}

// waitReader opens a FIFO for writing once it has a reader.
func waitReader(ctx context.Context, path string) (*os.File, error) {
	type result struct {
		fd  int
		err error
	}
	opened := make(chan result, 1)
	go func() {
		fd, err := openBlocking(path)
		opened <- result{fd, err}
	}()
	var r result
	select {
	case r = <-opened:
	case <-ctx.Done():
		// Our own reader lets the waiting open return.
		if f, err := openFIFOReader(path); err == nil {
			defer f.Close()
		}
		if r = <-opened; r.err == nil {
			unix.Close(r.fd)
		}
		return nil, fmt.Errorf("wait for a reader of %q: %w", path, ctx.Err())
	}
	if r.err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: r.err}
	}
	if err := unix.SetNonblock(r.fd, true); err != nil {
		unix.Close(r.fd)
		return nil, err
	}
	return os.NewFile(uintptr(r.fd), path), nil
}

func openBlocking(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
