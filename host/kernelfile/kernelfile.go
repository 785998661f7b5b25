// Package kernelfile reads the small files in which the kernel answers: those of cgroups and of
// /proc.
package kernelfile

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Read returns what a file holds. Such files can be polled, so package os would watch each one for
// as long as it is open; here it is opened, read and closed.
func Read(path string) (string, error) {
	var room [4096]byte
	data, err := read(room[:0], false, path)
	return string(data), err
}

// ReadRecord is Read for a file that the kernel writes in one piece: a number, a table, a pressure.
// A read that leaves room has seen its end, which saves a system call.
func ReadRecord(path string) (string, error) {
	var room [4096]byte
	data, err := AppendRecord(room[:0], path)
	return string(data), err
}

// AppendRecord is ReadRecord into room that the caller has, which saves the garbage: statistics are
// read every few seconds, a dozen files for each of hundreds of pods. The path is what its parts
// are together.
func AppendRecord(room []byte, path ...string) ([]byte, error) { return read(room, true, path...) }

func read(data []byte, record bool, parts ...string) ([]byte, error) {
	path := strings.Join(parts, "")
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for {
		if len(data) == cap(data) {
			data = slices.Grow(data, 1024)
		}
		n, err := retry(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		data = data[:len(data)+n]
		if n == 0 || record && len(data) < cap(data) {
			return data, nil
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
