// Package boot names the times that the machine was started.
package boot

import (
	"fmt"
	"os"
	"strings"
)

// ID returns the kernel's name for this start of the machine: a UUID that no other start has
// (random(4)).
func ID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
