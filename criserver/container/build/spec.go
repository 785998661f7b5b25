package build

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/durable"
)

// WriteSpec replaces a bundle's specification as a whole. It is not synced: the folder is on a
// tmpfs as a rule, and no bundle outlives a reboot.
func WriteSpec(dir string, s *specs.Spec) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write specification: %w", err)
	}
	return WriteConfig(dir, data)
}

// WriteConfig is WriteSpec for a specification as its bytes.
func WriteConfig(dir string, data []byte) error {
	if err := durable.Replace(filepath.Join(dir, ConfigFile), data, 0o600); err != nil {
		return fmt.Errorf("write specification: %w", err)
	}
	return nil
}
