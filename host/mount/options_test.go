package mount

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestParseOptions(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		flags   uintptr
		data    string
		refused bool
	}{
		"nothing":       {"", 0, "", false},
		"flags":         {"ro nosuid nodev noexec", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "", false},
		"the last wins": {"ro rw noexec exec", 0, "", false},
		"overlay":       {"index=off lowerdir=/a:/b userxattr ro", unix.MS_RDONLY, "index=off,lowerdir=/a:/b,userxattr", false},
		"bind":          {"rbind ro", unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY, "", false},
		"loop device":   {"loop", 0, "", true},
	} {
		flags, data, err := ParseOptions(strings.Fields(c.options))
		if c.refused {
			if !errdefs.IsNotImplemented(err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || flags != c.flags || strings.Join(data, ",") != c.data {
			t.Errorf("%s: %#x %q %v", name, flags, data, err)
		}
	}
}
