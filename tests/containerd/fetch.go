package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Debian returns this system's own containerd package, unpacked below dir and not installed: an
// installed one has a service that systemd starts. It is fetched once, as apt is configured.
func Debian(ctx context.Context, dir string) (Release, error) {
	bin := filepath.Join(dir, "usr", "bin")
	if _, err := os.Stat(filepath.Join(bin, "containerd")); err != nil {
		if err := fetch(ctx, dir); err != nil {
			return Release{}, err
		}
	}
	return Installed(ctx, bin)
}

// Installed is the release whose programs lie in a folder.
func Installed(ctx context.Context, bin string) (Release, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "containerd"), "--version").Output()
	if err != nil {
		return Release{}, fmt.Errorf("ask %q for its version: %w", bin, err)
	}
	// containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return Release{}, fmt.Errorf("containerd in %q has version %q", bin, out)
	}
	numbers := strings.SplitN(strings.TrimPrefix(fields[2], "v"), ".", 3)
	if len(numbers) < 3 {
		return Release{}, fmt.Errorf("containerd in %q has version %q", bin, out)
	}
	return Release{Name: numbers[0] + "." + numbers[1], Bin: bin}, nil
}

// fetch unpacks the package in dir, whole or not at all.
func fetch(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "sunaba-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	apt := func(command ...string) error { // mirrors may be busy
		return quiet(ctx, temp, "apt-get", append([]string{"-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=5"}, command...)...)
	}
	if err := apt("download", "containerd"); err != nil {
		updated := apt("update")
		if again := apt("download", "containerd"); again != nil {
			return errors.Join(err, updated, again)
		}
	}
	packages, err := filepath.Glob(filepath.Join(temp, "containerd_*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("fetch package containerd: found %q, %w", packages, err)
	}
	if err := os.RemoveAll(dir + ".tmp"); err != nil {
		return err
	}
	if err := os.MkdirAll(dir+".tmp", 0o755); err != nil {
		return err
	}
	if err := quiet(ctx, temp, "dpkg-deb", "-x", packages[0], dir+".tmp"); err != nil {
		return err
	}
	return os.Rename(dir+".tmp", dir)
}

func quiet(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return nil
}
