package ociruntime

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// Features are what a server must know of an OCI runtime before it uses it.
type Features struct {
	// RecursiveReadOnly says that it can make recursive read-only mounts.
	RecursiveReadOnly bool
	// OneStep says that its `run --detach` leaves the exit of a container that ends before it does
	// to its parent.
	OneStep bool
}

func parseFeatures(text []byte) (Features, error) {
	var f features.Features
	if err := json.Unmarshal(text, &f); err != nil {
		return Features{}, fmt.Errorf("read features: %w", err)
	}
	return Features{
		RecursiveReadOnly: slices.Contains(f.MountOptions, "rro"),
		OneStep:           f.Annotations[runcVersion] != "",
	}, nil
}

// runcVersion is the annotation by which runc tells that it is runc. crun, which has a list of
// features too, waits itself for what it has let run, also detached.
const runcVersion = "org.opencontainers.runc.version"

// parseVersion knows what runtimes could do that do not list it: crun has recursive mount options
// since 1.4, and lists its features since 1.8.6; runc since 1.1 both.
func parseVersion(text string) Features {
	var major, minor int
	_, version, ok := strings.Cut(text, "crun version ")
	if !ok {
		return Features{}
	}
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return Features{}
	}
	return Features{RecursiveReadOnly: major > 1 || major == 1 && minor >= 4}
}
