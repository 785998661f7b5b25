package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

// CompileOptions says what is compiled, and by whom.
type CompileOptions struct {
	Binary   string // shim binary
	CacheDir string
	Module   string // path; "" = compile nothing, read what is kept
	Digest   string // "sha256:…" of the module
	// OptimizeGo has the functions of a Go module rewritten, as they are for the pods that ask for it.
	OptimizeGo bool
	// Memory is what all compilations may take together, in bytes, by their cgroup.
	Memory uint64
	// Born and Place are as in StartOptions.
	Born  func(attr *syscall.SysProcAttr) (release func(), err error)
	Place func(pid int) error
}

// compileGrace is how long a compilation that is not wanted any more has to remove what it wrote.
const compileGrace = 5 * time.Second

// Compile compiles a module into the cache ahead of time, in an unprivileged process of its own,
// and reads all that a guest will map of it: what was read first by these processes does not count
// to a pod. The processes end when ctx does, and when this process does.
//
// # Errors
//
// ErrInvalidArgument, with a text, for a module that is not valid and for a component; the
// context's.
func Compile(ctx context.Context, o CompileOptions) error {
	cmd := exec.CommandContext(ctx, o.Binary, "compile", "-cache", o.CacheDir, "-digest", o.Digest, "-memory", strconv.FormatUint(o.Memory, 10), "-leased")
	if o.OptimizeGo {
		cmd.Args = append(cmd.Args, "-optimize-go")
	}
	if o.Module != "" {
		cmd.Args = append(cmd.Args, o.Module)
	}
	cmd.Env = shimEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = compileGrace
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	lease, err := cmd.StdinPipe() // closed with this process, however that ends
	if err != nil {
		return fmt.Errorf("start compiler: %w", err)
	}
	defer lease.Close()
	if err := launch(cmd, o.Born); err != nil {
		return fmt.Errorf("start compiler: %w", err)
	}
	if o.Place != nil {
		if err := o.Place(cmd.Process.Pid); err != nil {
			return errors.Join(fmt.Errorf("place compiler: %w", err), cmd.Process.Kill(), cmd.Wait())
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() == compileRefused:
		return fmt.Errorf("%s: %w", strings.TrimSpace(stderr.String()), errdefs.ErrInvalidArgument)
	default:
		return fmt.Errorf("compile module %s: %w: %s", o.Digest, err, strings.TrimSpace(stderr.String()))
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
