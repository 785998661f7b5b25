// Package boot names the times that the machine was started.
package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// File is the kernel's file of the id, below /proc.
const File = "sys/kernel/random/boot_id"

// ID returns the kernel's name for this start of the machine: a UUID that no other start has
// (random(4)).
func ID() (string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", File))
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
