package session

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fifo is a FIFO between this server and a shim: this side's end, and the other one too until the
// shim has it open.
type fifo struct {
	path   string
	file   *os.File
	holder *os.File
}

// attachPrefix is what the pipes of clients that attach are called by; those of commands have the
// command's id.
const attachPrefix = "attach-"

// newFIFO makes a FIFO to write to, or to read from.
func newFIFO(path string, write bool) (*fifo, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("make FIFO %q: %w", path, err)
	}
	f := &fifo{path: path}
	r, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		f.remove()
		return nil, fmt.Errorf("open FIFO: %w", err)
	}
	w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		r.Close()
		f.remove()
		return nil, fmt.Errorf("open FIFO: %w", err)
	}
	f.file, f.holder = r, w
	if write {
		f.file, f.holder = w, r
	}
	return f, nil
}

// taken is called once the shim has its end open, or will not open it. The path is no longer
// needed.
func (f *fifo) taken() {
	f.holder.Close()
	os.Remove(f.path)
}

// remove closes both ends. It may be called again.
func (f *fifo) remove() {
	for _, file := range []*os.File{f.file, f.holder} {
		if file != nil {
			file.Close()
		}
	}
	os.Remove(f.path)
}
