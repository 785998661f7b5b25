package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// Compile compiles the module at modulePath into cacheDir ahead of time, in an unprivileged process of its own. With optimizeGo
// the functions of a Go module are rewritten, as they are for the pods that ask for it.
// ErrInvalidArgument, with a text, for a module that is not valid and for a component.
func Compile(ctx context.Context, binary, cacheDir, modulePath, digest string, optimizeGo bool) error {
	args := []string{"compile", "-cache", cacheDir, "-digest", digest}
	if optimizeGo {
		args = append(args, "-optimize-go")
	}
	cmd := exec.CommandContext(ctx, binary, append(args, modulePath)...)
	cmd.Env = shimEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() == compileRefused:
		return fmt.Errorf("%s: %w", strings.TrimSpace(stderr.String()), errdefs.ErrInvalidArgument)
	default:
		return fmt.Errorf("compile %q: %w: %s", modulePath, err, strings.TrimSpace(stderr.String()))
	}
}

// CompiledModule is what Compile keeps of one module.
type CompiledModule struct {
	Digest string
	Bytes  int64
	// Used is when it was made or taken last, to the hour.
	Used time.Time
	// Running says that a guest has it in its file system.
	Running bool
}

// Compiled returns what Compile keeps, by digest.
func Compiled(ctx context.Context, binary, cacheDir string) ([]CompiledModule, error) {
	cmd := exec.CommandContext(ctx, binary, "compile", "-cache", cacheDir, "-list")
	cmd.Env = shimEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list compiled modules: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var all []CompiledModule
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("list compiled modules: %w", err)
	}
	return all, nil
}

// compileRefused is the compile face's exit code for a module that is not valid.
const compileRefused = 65

// DropCompiled removes what Compile keeps of a module, when its image goes. It is idempotent.
func DropCompiled(ctx context.Context, binary, cacheDir, digest string) error {
	cmd := exec.CommandContext(ctx, binary, "compile", "-cache", cacheDir, "-digest", digest, "-drop")
	cmd.Env = shimEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("drop compiled module %q: %w: %s", digest, err, strings.TrimSpace(string(out)))
	}
	return nil
}
