package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// KilledServers are the folders of temporary servers whose process was killed: those of this user,
// below the folder for temporary files, whose lock nobody holds. One without a lock is being made.
func KilledServers(pattern string, lock func(dir string) string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), pattern))
	if err != nil {
		return nil, fmt.Errorf("list folders of servers: %w", err)
	}
	var killed []string
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list folders of servers: %w", err)
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() {
			continue
		}
		if _, err := os.Lstat(lock(dir)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		free, err := unlocked(lock(dir))
		if err != nil {
			return nil, fmt.Errorf("look at the lock of %q: %w", dir, err)
		}
		if free {
			killed = append(killed, dir)
		}
	}
	return killed, nil
}
