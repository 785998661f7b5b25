package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// What the yardsticks measured where the goals were set, in milliseconds.
const (
	runcThere = 20.5
	syncThere = 0.4
)

// Yardstick measures what this machine takes just now for two things that are not ours and that the
// goals build on: a bare `runc run` of a program that does nothing, and a file written durably.
type Yardstick struct {
	dir        string
	run        func() error
	runc, sync []time.Duration
}

// NewYardstick makes a bundle to run. Close removes it.
func NewYardstick(ctx context.Context) (*Yardstick, error) {
	dir, err := os.MkdirTemp("", "sunaba-yardstick-")
	if err != nil {
		return nil, err
	}
	y := &Yardstick{dir: dir}
	if y.run, err = bareRun(ctx, dir); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return y, nil
}

// Close removes what NewYardstick made.
func (y *Yardstick) Close() error { return os.RemoveAll(y.dir) }

// Take measures both once. It is taken after each measured pod: a machine that others use changes
// by the minute.
func (y *Yardstick) Take() error {
	runc, err := timed(y.run)
	if err != nil {
		return fmt.Errorf("run a bare container: %w", err)
	}
	sync, err := timed(func() error { return durable(y.dir) })
	if err != nil {
		return fmt.Errorf("write a durable file: %w", err)
	}
	y.runc, y.sync = append(y.runc, runc), append(y.sync, sync)
	return nil
}

// Slower is how many times longer a bare `runc run` took than where the goals were set; 1 where
// nothing was taken.
func (y *Yardstick) Slower() float64 {
	if y == nil || len(y.runc) == 0 {
		return 1
	}
	return Milliseconds(Median(y.runc)) / runcThere
}

// Print writes the medians of what was taken.
func (y *Yardstick) Print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "\nthis machine now: bare runc run of true %.1f ms (%.1f where the goals were set), a durable file %.1f ms (%.1f)\n",
		Milliseconds(Median(y.runc)), runcThere, Milliseconds(Median(y.sync)), syncThere)
	return err
}

// bareRun makes a bundle whose program does nothing, and returns what runs it.
func bareRun(ctx context.Context, dir string) (func() error, error) {
	bundle := filepath.Join(dir, "bundle")
	root := filepath.Join(bundle, "rootfs")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	program, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "busybox"), data, 0o755)
	}
	if err != nil {
		return nil, err
	}
	if said, err := exec.CommandContext(ctx, "runc", "spec", "-b", bundle).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make a bundle: %w: %s", err, said)
	}
	var spec specs.Spec
	file := filepath.Join(bundle, "config.json")
	if data, err = os.ReadFile(file); err == nil {
		err = json.Unmarshal(data, &spec)
	}
	if err != nil {
		return nil, err
	}
	spec.Process.Terminal, spec.Process.Args = false, []string{"/busybox", "true"}
	if data, err = json.Marshal(spec); err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		id := fmt.Sprintf("sunaba-yardstick-%d", os.Getpid())
		said, err := exec.CommandContext(ctx, "runc", "--root", filepath.Join(dir, "runc"), "run", "-b", bundle, id).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	}, nil
}

// durable writes a file as records are written: it holds the old or the new bytes at any moment.
func durable(dir string) error {
	temp, file := filepath.Join(dir, "file.new"), filepath.Join(dir, "file")
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temp, file); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

func timed(do func() error) (time.Duration, error) {
	begun := time.Now()
	err := do()
	return time.Since(begun), err
}
