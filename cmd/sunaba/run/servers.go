package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sunaba-project/sunaba/host/durable"
)

// HoldServer locks the folder of a temporary server for as long as the file that it returns is open:
// its run holds it from before the server starts until the folder is gone. It is durable.ErrLocked
// if another process has it.
func HoldServer(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := durable.Lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// KilledServers are the folders of temporary servers whose process was killed: those of this user,
// below the folder for temporary files, that nobody holds although a server began to serve in them.
// Such a server has made the file begun(folder).
func KilledServers(pattern string, begun func(dir string) string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), pattern))
	if err != nil {
		return nil, fmt.Errorf("list folders of servers: %w", err)
	}
	var killed []string
	for _, dir := range dirs {
		free, err := freeServer(dir, begun(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look at the folder %q: %w", dir, err)
		}
		if free {
			killed = append(killed, dir)
		}
	}
	return killed, nil
}

func freeServer(dir, begun string) (bool, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return false, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() {
		return false, nil
	}
	if _, err := os.Lstat(begun); err != nil {
		return false, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if held, err := durable.Locked(f); err != nil || held {
		return false, err
	}
	_, err = os.Lstat(begun) // a run that ended meanwhile removed it while it held the folder
	return err == nil, err
}
