package wasm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// runPrefix is the prefix of the names of the cgroups of guests that are run; the process id of
// their `sunaba wasm run` follows.
const runPrefix = "sunaba-run-"

func runName(pid int) string { return runPrefix + strconv.Itoa(pid) }

// sweep removes the cgroups of runs that were killed: their guests ended with them, the cgroups are
// empty. This run has made none yet: one by its name is of another that had the same process id,
// and has that one's limits.
func sweep() error {
	var errs []error
	for _, pattern := range []string{"/sys/fs/cgroup/" + runPrefix + "*", "/sys/fs/cgroup/*/" + runPrefix + "*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, dir := range found {
			pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), runPrefix))
			if err != nil || pid != os.Getpid() && unix.Kill(pid, 0) == nil {
				continue
			}
			// EBUSY: the guest is still about to end.
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove cgroup %q of a run that was killed: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}
