package mount

import (
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// setting and clearing are the mount options that are flags of mount(2); all others are the file
// system's own.
var (
	setting = map[string]uintptr{
		"bind": unix.MS_BIND, "defaults": 0, "dirsync": unix.MS_DIRSYNC, "noatime": unix.MS_NOATIME, "nodev": unix.MS_NODEV,
		"nodiratime": unix.MS_NODIRATIME, "noexec": unix.MS_NOEXEC, "nosuid": unix.MS_NOSUID, "rbind": unix.MS_BIND | unix.MS_REC,
		"relatime": unix.MS_RELATIME, "ro": unix.MS_RDONLY, "strictatime": unix.MS_STRICTATIME, "sync": unix.MS_SYNCHRONOUS,
	}
	clearing = map[string]uintptr{
		"async": unix.MS_SYNCHRONOUS, "atime": unix.MS_NOATIME, "dev": unix.MS_NODEV, "diratime": unix.MS_NODIRATIME,
		"exec": unix.MS_NOEXEC, "norelatime": unix.MS_RELATIME, "nostrictatime": unix.MS_STRICTATIME, "rw": unix.MS_RDONLY,
		"suid": unix.MS_NOSUID,
	}
)

// ParseOptions splits options into mount(2)'s flags and the file system's own options.
//
// # Errors
//
// ErrNotImplemented for loop devices.
func ParseOptions(options []string) (flags uintptr, data []string, err error) {
	for _, o := range options {
		if flag, ok := setting[o]; ok {
			flags |= flag
		} else if flag, ok := clearing[o]; ok {
			flags &^= flag
		} else if o == "loop" {
			return 0, nil, fmt.Errorf("mount option %q: %w", o, errdefs.ErrNotImplemented)
		} else {
			data = append(data, o)
		}
	}
	return flags, data, nil
}
