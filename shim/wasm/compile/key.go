package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/cpu"

	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

// layout is raised whenever the meaning of an entry's files changes, what is written in place of a
// function, the module that a component is lowered to, or features.
const layout = 10

// engine names what an entry's machine code depends on beside the module. The version of wazero is
// the whole one, with its checksum or what replaces it: wazero's own cache has only the number,
// which a fork keeps.
var engine = sync.OnceValue(func() string {
	text := fmt.Sprintf("%d %s %s %s", layout, wazeroversion.Linked(), runtime.GOARCH, cpuFeatures())
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
})

// untold stands for the engine of a program that does not tell what it was built of: a test.
const untold = "-"

// told is the engine's name for another program.
func told() string {
	if wazeroversion.Linked() == wazeroversion.Unknown {
		return untold
	}
	return engine()
}

// checkEngine returns nil if this program makes entries for the engine that another program told,
// or one of both does not tell.
func checkEngine(name string) error {
	if own := told(); own != untold && name != untold && name != own {
		return fmt.Errorf("this program has the engine %s, and the one that started it has %s: install both of one release: %w",
			own, name, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// entryDir is where the entry of a module, made without the skipped steps, is for this engine.
func entryDir(cacheDir, digest string, skip Steps) string {
	name := hash(digest) + "-" + engine()
	if skip &= AllSteps; skip != 0 {
		name = fmt.Sprintf("%s-%d", name, skip)
	}
	return filepath.Join(cacheDir, name)
}

// cpuFeatures lists what wazero's compiler looks at, and is empty where it interprets.
func cpuFeatures() string {
	var have []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"sse4.1", cpu.X86.HasSSE41},
		{"bmi1", cpu.X86.HasBMI1},
		{"bmi2", cpu.X86.HasBMI2},
		{"popcnt", cpu.X86.HasPOPCNT},
		{"atomics", cpu.ARM64.HasATOMICS},
	} {
		if f.has {
			have = append(have, f.name)
		}
	}
	return strings.Join(have, ",")
}

// Native says whether wazero compiles here, or interprets.
func Native() bool { return runtime.GOARCH == "arm64" || runtime.GOARCH == "amd64" && cpu.X86.HasSSE41 }
