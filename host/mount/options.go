package mount

import (
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// flagOptions are the mount options that are flags of mount(2); all others are the file system's
// own.
var flagOptions = map[string]struct {
	clear bool
	flag  uintptr
}{
	"async":         {true, unix.MS_SYNCHRONOUS},
	"atime":         {true, unix.MS_NOATIME},
	"bind":          {false, unix.MS_BIND},
	"defaults":      {false, 0},
	"dev":           {true, unix.MS_NODEV},
	"diratime":      {true, unix.MS_NODIRATIME},
	"dirsync":       {false, unix.MS_DIRSYNC},
	"exec":          {true, unix.MS_NOEXEC},
	"noatime":       {false, unix.MS_NOATIME},
	"nodev":         {false, unix.MS_NODEV},
	"nodiratime":    {false, unix.MS_NODIRATIME},
	"noexec":        {false, unix.MS_NOEXEC},
	"norelatime":    {true, unix.MS_RELATIME},
	"nostrictatime": {true, unix.MS_STRICTATIME},
	"nosuid":        {false, unix.MS_NOSUID},
	"rbind":         {false, unix.MS_BIND | unix.MS_REC},
	"relatime":      {false, unix.MS_RELATIME},
	"ro":            {false, unix.MS_RDONLY},
	"rw":            {true, unix.MS_RDONLY},
	"strictatime":   {false, unix.MS_STRICTATIME},
	"suid":          {true, unix.MS_NOSUID},
	"sync":          {false, unix.MS_SYNCHRONOUS},
}

// ParseOptions splits options into mount(2)'s flags and the file system's own options.
//
// # Errors
//
// ErrNotImplemented for loop devices.
func ParseOptions(options []string) (flags uintptr, data []string, err error) {
	for _, o := range options {
		switch f, ok := flagOptions[o]; {
		case ok && f.clear:
			flags &^= f.flag
		case ok:
			flags |= f.flag
		case o == "loop":
			return 0, nil, fmt.Errorf("mount option %q: %w", o, errdefs.ErrNotImplemented)
		default:
			data = append(data, o)
		}
	}
	return flags, data, nil
}
