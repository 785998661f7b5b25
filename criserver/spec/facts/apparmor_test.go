package facts

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/contrib/apparmor"
	"golang.org/x/sys/unix"
)

// rules are the lines of a profile that say something.
func rules(profile string) string {
	var said []string
	for line := range strings.Lines(profile) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		line = strings.TrimSpace(line)
		if line != "" && (!strings.HasPrefix(line, "#") || strings.HasPrefix(line, "#include")) {
			said = append(said, line)
		}
	}
	return strings.Join(said, "\n")
}

// Whatever the parser came with, the default profile says what containerd's says.
func TestDefaultProfileIsContainerds(t *testing.T) {
	includes := []string{"abi/3.0", "tunables/global", "abstractions/base"}
	with, without := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(with, "rootlesskit"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for set := range 1 << (len(includes) + 1) {
		t.Setenv("PATH", without)
		if set&(1<<len(includes)) != 0 {
			t.Setenv("PATH", with)
		}
		var ours, theirs string
		err := withoutEtc(func() error {
			for i, name := range includes {
				if path := filepath.Join("/etc/apparmor.d", name); set&(1<<i) != 0 {
					if err := os.MkdirAll(path, 0o755); err != nil {
						return err
					}
				}
			}
			var err error
			ours = defaultProfile("mine")
			theirs, err = apparmor.DumpDefaultProfile("mine")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if rules(ours) != rules(theirs) {
			t.Errorf("set %b of %q: ours is\n%s\ncontainerd's is\n%s", set, includes, rules(ours), rules(theirs))
		}
		seen[rules(ours)] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d profiles of 16 machines", len(seen))
	}
}

// withoutEtc runs f in a thread that has an empty /etc, which ends with it.
func withoutEtc(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("make mounts private: %w", err)
			}
			if err := unix.Mount("tmpfs", "/etc", "tmpfs", 0, ""); err != nil {
				return fmt.Errorf("mount tmpfs: %w", err)
			}
			return f()
		}()
	}()
	return <-done
}
