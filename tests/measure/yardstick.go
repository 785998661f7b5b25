package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// What the yardsticks measured where the goals were set, in milliseconds.
const (
	runcThere = 20.5
	syncThere = 0.4
)

// Yardstick prints what this machine takes just now for two things that are not ours and that the goals build on: a bare
// `runc run` of a program that does nothing, and a file written durably. A goal that is missed while they take longer than
// there says little.
func Yardstick(ctx context.Context, out io.Writer, n int) error {
	dir, err := os.MkdirTemp("", "sunaba-yardstick-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	run, err := bareRun(ctx, dir)
	if err != nil {
		return err
	}
	runc, err := median(n, run)
	if err != nil {
		return fmt.Errorf("run a bare container: %w", err)
	}
	sync, err := median(n, func(int) error { return durable(dir) })
	if err != nil {
		return fmt.Errorf("write a durable file: %w", err)
	}
	_, err = fmt.Fprintf(out, "\nthis machine now: bare runc run of true %.1f ms (%.1f where the goals were set), a durable file %.1f ms (%.1f)\n",
		milliseconds(runc), runcThere, milliseconds(sync), syncThere)
	return err
}

// bareRun makes a bundle whose program does nothing, and returns what runs it.
func bareRun(ctx context.Context, dir string) (func(i int) error, error) {
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
	return func(i int) error {
		id := fmt.Sprintf("sunaba-yardstick-%d-%d", os.Getpid(), i)
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

func median(n int, f func(i int) error) (time.Duration, error) {
	times := make([]time.Duration, n)
	for i := range times {
		begun := time.Now()
		if err := f(i); err != nil {
			return 0, err
		}
		times[i] = time.Since(begun)
	}
	slices.Sort(times)
	return times[n/2], nil
}
