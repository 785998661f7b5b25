package task

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const (
	// messagePath is where a kubelet mounts the file for a container's termination message, unless
	// its pod's author chooses another place, which is not told to a shim.
	messagePath = "/dev/termination-log"
	// maxTermination is how many bytes of a termination message a kubelet reads.
	maxTermination = 4096
)

// messageFile is the file of the host that a container's termination message belongs into, "" if
// it has none that it can write.
func messageFile(spec *specs.Spec) string {
	for _, m := range slices.Backward(spec.Mounts) { // a later mount hides an earlier one
		if filepath.Clean(m.Destination) == messagePath {
			if slices.Contains(m.Options, "ro") {
				return ""
			}
			return m.Source
		}
	}
	return ""
}

// leaveMessage writes what an engine says of a container's end into the file for its termination
// message. What the container has written itself stays, and nothing but a regular file is written.
func leaveMessage(path, text string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("write termination message: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("write termination message: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > 0 {
		return nil
	}
	if _, err := f.WriteString(strings.ToValidUTF8(text[:min(len(text), maxTermination)], "")); err != nil {
		return fmt.Errorf("write termination message: %w", err)
	}
	return nil
}
