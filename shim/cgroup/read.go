package cgroup

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// buffers are lent for one reading: figures are asked for every second, in every shim of a node.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// read returns what a file of the hierarchies holds. These files can be polled, so package os would have each one watched for
// as long as it is open; here it is opened, read and closed.
func read(path string) (string, error) {
	fd, err := open(path)
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
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return "", &os.PathError{Op: "read", Path: path, Err: err}
		case n <= 0:
			return string(data), nil
		default:
			data = data[:len(data)+n]
		}
	}
}

func open(path string) (fd int, err error) {
	for {
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != unix.EINTR {
			return fd, err
		}
	}
}
