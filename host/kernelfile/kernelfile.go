// Package kernelfile reads the small files in which the kernel answers: those of cgroups and of
// /proc.
package kernelfile

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// buffers are taken for one reading: statistics are read every second, of hundreds of containers.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// Read returns what a file holds. Such files can be polled, so package os would watch each one for
// as long as it is open; here it is opened, read and closed.
func Read(path string) (string, error) { return read(path, false) }

// ReadRecord is Read for a file that the kernel writes in one piece: a number, a table, a pressure.
// A read that leaves room has seen its end, which saves a system call.
func ReadRecord(path string) (string, error) { return read(path, true) }

func read(path string, record bool) (string, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	buf := buffers.Get().(*[4096]byte)
	defer buffers.Put(buf)
	data := buf[:0]
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := retry(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if err != nil {
			return "", &os.PathError{Op: "read", Path: path, Err: err}
		}
		data = data[:len(data)+n]
		if n == 0 || record && len(data) < cap(data) {
			return string(data), nil
		}
	}
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
