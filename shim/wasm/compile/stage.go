package compile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/shim/wasm/cage"
)

// exitRefused is the exit code for a module that is not valid.
const exitRefused = 65

// maxComplaint bounds what is kept of the standard error of a child.
const maxComplaint = 8 << 10

func checkHeader(f *os.File) error {
	head := make([]byte, binfmt.WasmHeader)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read module: %w", err)
	}
	return binfmt.CheckWasm(head[:n])
}

// stage makes the entry in a directory beside its place and renames it. The caller holds the lock
// of the digest.
func (o Options) stage(ctx context.Context, module *os.File, digest string) error {
	dir, err := os.MkdirTemp(o.CacheDir, stagePrefix(digest))
	if err != nil {
		return fmt.Errorf("make working directory: %w", err)
	}
	defer os.RemoveAll(dir)
	copied, err := copyModule(module, filepath.Join(dir, "in"), digest)
	if err != nil {
		return err
	}
	defer copied.Close()
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o700); err != nil {
		return err
	}
	if err := os.Chown(out, cage.Nobody, cage.Nobody); err != nil {
		return err
	}
	if err := o.runChild(ctx, copied, out); err != nil {
		return err
	}
	if err := seal(out, digest); err != nil {
		return fmt.Errorf("take over compiled module: %w", err)
	}
	if err := os.Rename(out, entryDir(o.CacheDir, digest, o.Skip)); err != nil {
		return fmt.Errorf("publish compiled module: %w", err)
	}
	return syncFile(o.CacheDir)
}

// copyModule makes a copy that no other user can change while it is compiled, and checks its
// digest.
func copyModule(module *os.File, path, digest string) (*os.File, error) {
	if _, err := module.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	got, err := Digest(io.TeeReader(module, f))
	if err == nil && got != digest {
		err = fmt.Errorf("module has digest %s, not %s: %w", got, digest, errdefs.ErrInvalidArgument)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("copy module: %w", err)
	}
	return os.Open(path) // for reading only
}

// runChild compiles module into out in an unprivileged process.
func (o Options) runChild(ctx context.Context, module *os.File, out string) error {
	outDir, err := os.Open(out)
	if err != nil {
		return err
	}
	defer outDir.Close()
	complaint, stderr, err := os.Pipe()
	if err != nil {
		return err
	}
	defer complaint.Close()
	defer stderr.Close()

	if o.limits == (limits{}) {
		info, err := module.Stat()
		if err != nil {
			return err
		}
		o.limits = ample(info.Size())
		o.limits.heap = min(o.Memory, o.limits.data)
	}
	cmd := exec.Command(o.Self, childArgs(o.Skip, o.limits)...)
	cmd.Env = []string{"GOTRACEBACK=none"}
	cmd.Stderr = stderr
	cmd.ExtraFiles = []*os.File{module, outDir} // childModule, childOut
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		Setsid:     true,
	}
	wait, err := startNarrowed(o.Start, cmd)
	if err != nil {
		return fmt.Errorf("start compiler: %w", err)
	}
	stderr.Close()

	ended := make(chan int, 1)
	go func() { ended <- wait() }()
	text := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(io.LimitReader(complaint, maxComplaint))
		_, _ = io.Copy(io.Discard, complaint)
		text <- strings.TrimSpace(string(data))
	}()
	select {
	case code := <-ended:
		return childError(code, <-text)
	case <-ctx.Done():
		_ = cmd.Process.Kill() // it may have ended just now
		<-ended
		return fmt.Errorf("compile module: %w", ctx.Err())
	}
}

// startNarrowed starts cmd from a thread that drops privileges and is then thrown away.
func startNarrowed(start func(*exec.Cmd) (func() int, error), cmd *exec.Cmd) (wait func() int, err error) {
	thread.Run(func() {
		if err = cage.Narrow(); err == nil {
			wait, err = start(cmd)
		}
	})
	return wait, err
}

func childError(code int, text string) error {
	switch {
	case code == 0:
		return nil
	case code == exitRefused:
		return fmt.Errorf("%s: %w", text, errdefs.ErrInvalidArgument)
	case code == exitExhausted || code >= 128:
		return fmt.Errorf("compile module: more memory or time than a compilation may use (code %d) %s: %w",
			code, text, errdefs.ErrResourceExhausted)
	default:
		return fmt.Errorf("compile module: compiler ended with %d: %s", code, text)
	}
}

// exitCode is a process's exit code or 128 + signal.
func exitCode(state *os.ProcessState) int {
	if state == nil {
		return 255
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
