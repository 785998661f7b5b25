package stats

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readFile reads a small file of the kernel. A node with hundreds of containers has thousands of them, and os.ReadFile
// makes twice as many system calls for each.
func readFile(path string) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 2048)
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return data, nil
		}
		data = data[:len(data)+n]
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// readShort reads a file that the kernel writes in one piece (a number, a table, a pressure) into buf, or into a larger
// one. A read that leaves room has seen the end, which spares asking for it.
func readShort(path string, buf []byte) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	n, err := retry(func() (int, error) { return unix.Read(fd, buf) })
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	if n == len(buf) {
		return readFile(path)
	}
	return buf[:n], nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// readInterfaces reads the traffic of all interfaces but the loopback from a process's /proc/<pid>/net/dev. The process
// must be in the network namespace ns.
//
// # Errors
//
// fs.ErrNotExist if it is gone or in another namespace.
func readInterfaces(pid int, ns os.FileInfo) ([]Interface, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	data, err := readFile(filepath.Join(dir, "net", "dev"))
	if err != nil {
		return nil, err
	}
	own, err := os.Stat(filepath.Join(dir, "ns", "net")) // after the file: it is the same process that is asked
	if err != nil || !os.SameFile(own, ns) {
		return nil, fmt.Errorf("process %d is in another network namespace: %w", pid, fs.ErrNotExist)
	}
	return parseInterfaces(data)
}

// parseInterfaces reads the form of /proc/net/dev: two lines of heading, then a line for each interface.
func parseInterfaces(data []byte) ([]Interface, error) {
	out := []Interface{}
	for n, line := range bytes.Split(bytes.TrimSpace(data), []byte{'\n'}) {
		if n < 2 {
			continue
		}
		name, rest, ok := strings.Cut(string(line), ":")
		f := strings.Fields(rest)
		if !ok || len(f) < 12 {
			return nil, fmt.Errorf("line %q of /proc/net/dev", line)
		}
		if name = strings.TrimSpace(name); name == "lo" {
			continue
		}
		i := Interface{Name: name}
		for column, to := range map[int]*uint64{
			0: &i.RxBytes, 1: &i.RxPackets, 2: &i.RxErrors, 3: &i.RxDropped,
			8: &i.TxBytes, 9: &i.TxPackets, 10: &i.TxErrs, 11: &i.TxDropped,
		} {
			v, err := strconv.ParseUint(f[column], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("line %q of /proc/net/dev: %w", line, err)
			}
			*to = v
		}
		out = append(out, i)
	}
	return out, nil
}
