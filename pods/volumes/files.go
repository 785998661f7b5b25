package volumes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Sizes of termination messages in bytes, and of what stands for one in lines: a kubelet's.
const (
	longestMessage    = 4096
	longestLogMessage = 2048
	mostLogLines      = 80
)

// longestHosts is the most bytes of a hosts file that WriteHosts compares.
const longestHosts = 1 << 20

// WriteHosts writes the hosts file that the containers of a pod share, with mode 0644, and answers
// its path, for Input.Hosts of package translate. If a container has changed its file, or the
// content is new, containers from now on have another file, and those before keep theirs.
func (m *Manager) WriteHosts(uid string, content []byte) (path string, err error) {
	p, err := m.placesFor(uid)
	if err != nil {
		return "", err
	}
	defer m.locks.lock(uid)()
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return "", fmt.Errorf("write hosts file: %w", err)
	}
	if have, err := regular.Read(p.hosts(), longestHosts); err == nil && bytes.Equal(have, content) {
		return p.hosts(), nil
	}
	if err := durable.Replace(p.hosts(), content, 0o644); err != nil {
		return "", err
	}
	return p.hosts(), nil
}

// TerminationLog makes the file that an attempt of a container writes its termination message to,
// empty and with mode 0666, and answers its path. One that is there stays as it is.
func (m *Manager) TerminationLog(uid, container string, attempt uint32) (path string, err error) {
	p, err := m.placesFor(uid)
	if err == nil {
		err = checkName(container)
	}
	if err != nil {
		return "", err
	}
	defer m.locks.lock(uid)()
	path = filepath.Join(p.messages(), container, strconv.FormatUint(uint64(attempt), 10))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make termination log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("make termination log: %w", err)
	}
	if err := errors.Join(f.Chmod(0o666), f.Close()); err != nil {
		return "", fmt.Errorf("make termination log: %w", err)
	}
	return path, nil
}

// ReadTermination reads a termination message: the last 4096 bytes of a file of TerminationLog.
//
// # Errors
//
// Those of the file system, fs.ErrNotExist if there is no such file.
func ReadTermination(path string) (string, error) {
	data, _, err := readEnd(path, longestMessage)
	if err != nil {
		return "", fmt.Errorf("read termination message: %w", err)
	}
	return string(data), nil
}

// ReadLogEnd reads what stands for a termination message with FallbackToLogsOnError: what the last
// 80 lines of a log in the CRI's format contain, of both streams, at most its last 2048 bytes.
//
// # Errors
//
// Those of the file system, fs.ErrNotExist if there is no such file.
func ReadLogEnd(path string) (string, error) {
	// More of the end has no effect: it has 80 lines, or as many bytes of content as are wanted,
	// also without the line that it starts within.
	data, whole, err := readEnd(path, 4*(stdio.MaxLine+longestLogMessage+mostLogLines*128))
	if err != nil {
		return "", fmt.Errorf("read end of log: %w", err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if !whole {
		lines = lines[1:]
	}
	if n := len(lines); n > 0 && len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	lines = lines[max(0, len(lines)-mostLogLines):]
	var out []byte
	for _, line := range lines {
		out = append(out, lineContent(line)...)
	}
	return string(out[max(0, len(out)-longestLogMessage):]), nil
}

// lineContent is what a container wrote of a log's line: "TIME STREAM TAG CONTENT\n". Only what
// ends a line of the container, tag F, keeps its end. What is no such line has no content.
func lineContent(line []byte) []byte {
	parts := bytes.SplitN(line, []byte(" "), 4)
	if len(parts) < 4 {
		return nil
	}
	tag, _, _ := bytes.Cut(parts[2], []byte(":"))
	if string(tag) == "P" {
		return bytes.TrimSuffix(parts[3], []byte("\n"))
	}
	return parts[3]
}

// readEnd reads the last bytes of a regular file that may grow meanwhile. It says whether that is
// all of it.
func readEnd(path string, most int64) (data []byte, whole bool, err error) {
	f, err := regular.Open(path)
	if errdefs.IsInvalidArgument(err) {
		return nil, false, fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, false, err
	}
	from := max(0, size-most)
	data, err = io.ReadAll(io.NewSectionReader(f, from, size-from))
	return data, from == 0, err
}
