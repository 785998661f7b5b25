package facts

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/sunaba-project/sunaba/criserver/spec"
)

// askLimit is how long an OCI runtime may take to say what it can.
const askLimit = 10 * time.Second

// Runtimes asks OCI runtimes, side by side, what they can. One that cannot be run is left out: starting a container with
// it says why.
func Runtimes(ctx context.Context, binaries []string) map[string]spec.Runtime {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	out := map[string]spec.Runtime{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, binary := range binaries {
		all.Go(func() {
			runtime, err := askRuntime(ctx, binary)
			if err != nil {
				return
			}
			mu.Lock()
			out[binary] = runtime
			mu.Unlock()
		})
	}
	all.Wait()
	return out
}

// askRuntime: newer runtimes list their features, older ones have at least a version.
func askRuntime(ctx context.Context, binary string) (spec.Runtime, error) {
	if text, err := exec.CommandContext(ctx, binary, "features").Output(); err == nil {
		return parseFeatures(text)
	}
	text, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return spec.Runtime{}, fmt.Errorf("ask %q for its version: %w", binary, err)
	}
	return parseVersion(string(text)), nil
}

func parseFeatures(text []byte) (spec.Runtime, error) {
	var f features.Features
	if err := json.Unmarshal(text, &f); err != nil {
		return spec.Runtime{}, fmt.Errorf("read features: %w", err)
	}
	return spec.Runtime{
		RecursiveReadOnly: slices.Contains(f.MountOptions, "rro"),
		OneStep:           f.Annotations[runcVersion] != "",
	}, nil
}

// runcVersion is the annotation by which runc tells that it is runc. crun, which has a list of features too, waits itself for
// what it has let run, also detached.
const runcVersion = "org.opencontainers.runc.version"

// parseVersion knows what runtimes could do that do not list it: crun has recursive mount options since 1.4, and lists
// its features since 1.8.6; runc since 1.1 both.
func parseVersion(text string) spec.Runtime {
	var major, minor int
	_, version, ok := strings.Cut(text, "crun version ")
	if !ok {
		return spec.Runtime{}
	}
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return spec.Runtime{}
	}
	return spec.Runtime{RecursiveReadOnly: major > 1 || major == 1 && minor >= 4}
}
