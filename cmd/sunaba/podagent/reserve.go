package podagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Cgroups limit the memory of all pods together: a *cgroup.Manager.
type Cgroups interface{ LimitOwn(memory uint64) error }

// ReserveMemory limits all pods of the server to an amount of memory, in bytes (RE7). 0 takes away
// the limit that an earlier call set in this boot, and only that. state is the server's folder of
// what does not outlive a reboot.
func ReserveMemory(cgroups Cgroups, state string, memory uint64) error {
	mark := filepath.Join(state, "pods", "memory-limit")
	if memory > 0 {
		// The mark comes first: a limit without one would stay.
		if err := durable.Write(mark, []byte(strconv.FormatUint(memory, 10)+"\n"), 0o600); err != nil {
			return fmt.Errorf("note memory limit of all pods: %w", err)
		}
		return cgroups.LimitOwn(memory)
	}
	if _, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := cgroups.LimitOwn(0); err != nil {
		return err
	}
	if err := os.Remove(mark); err != nil {
		return fmt.Errorf("forget memory limit of all pods: %w", err)
	}
	return nil
}
