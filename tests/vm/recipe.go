package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sunaba-project/sunaba/tests/suites"
)

// machinePackages are what the machine has beside the packages of tests/setup.sh.
var machinePackages = []string{
	"linux-image-amd64", "systemd", "systemd-sysv", "udev", "dbus", "kmod", "procps", "apparmor", "criu", "iptables", "make", "sudo", "ca-certificates",
}

// unit runs the agent and switches the machine off when it ends, however it ends.
const unit = `[Unit]
Description=Test suites
After=multi-user.target dbus.socket apparmor.service
SuccessAction=poweroff
FailureAction=poweroff

[Service]
Type=oneshot
ExecStartPre=/bin/mount -t 9p -o ` + shares + ` ` + agentTag + ` ` + agentDir + `
ExecStart=` + agentDir + `/` + agentFile + ` -inside
TimeoutStartSec=infinity
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=1048576

[Install]
WantedBy=default.target
`

// customize is run by mmdebstrap with the new root folder as $1, as its last step.
const customize = `set -eu
mkdir -p "$1` + agentDir + `" "$1` + scratch + `"
# The first file system holds only what this machine's disk needs.
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/machine"
printf 'virtio_pci\nvirtio_blk\next4\n' >> "$1/etc/initramfs-tools/modules"
chroot "$1" update-initramfs -u
echo sunaba-vm > "$1/etc/hostname"
printf '127.0.0.1 localhost sunaba-vm\n::1 localhost\n' > "$1/etc/hosts"
echo 5eed5eed5eed5eed5eed5eed5eed5eed > "$1/etc/machine-id"
cat > "$1/etc/systemd/system/` + boots + `" <<'UNIT'
` + unit + `UNIT
chroot "$1" systemctl enable ` + boots + `
chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer fstrim.timer e2scrub_all.timer
rm -rf "$1"/var/cache/apt/* "$1"/usr/share/doc "$1"/usr/share/man
`

// image is a root file system with its kernel, made once and never changed: machines write
// elsewhere.
type image struct{ Disk, Kernel, Initrd string }

// rootImage returns the image of a folder, which it makes when it is not there or was made by
// another recipe.
func rootImage(ctx context.Context, dir, setup string, say func(string, ...any)) (*image, error) {
	out, err := exec.CommandContext(ctx, setup, "--packages").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %q for its packages: %w", setup, err)
	}
	packages := strings.Join(append(machinePackages, strings.Fields(string(out))...), ",")
	mirror := os.Getenv("DEBIAN_MIRROR")
	if mirror == "" {
		mirror = "http://deb.debian.org"
	}
	recipe := []string{debian, packages, customize, fmt.Sprint(needsDisk), mirror}
	sum := sha256.Sum256([]byte(strings.Join(recipe, "\x00")))
	stamp := hex.EncodeToString(sum[:])

	made := &image{filepath.Join(dir, "root.ext4"), filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd.img")}
	if have, err := os.ReadFile(filepath.Join(dir, stampFile)); err == nil && string(have) == stamp {
		return made, nil
	}
	say("making the root file system of Debian %s; it takes a few minutes, and is kept in %s", debian, dir)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := made.make(ctx, dir, packages, mirror); err != nil {
		return nil, err
	}
	return made, os.WriteFile(filepath.Join(dir, stampFile), []byte(stamp), 0o644)
}

func (i *image) make(ctx context.Context, dir, packages, mirror string) (err error) {
	tree, err := os.MkdirTemp(dir, "tree-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	if err := os.Chmod(tree, 0o755); err != nil {
		return err
	}
	log := filepath.Join(dir, "recipe.log")
	root := filepath.Join(tree, "root")
	if err := logged(ctx, log, "mmdebstrap", "--mode=root", "--variant=minbase", "--architectures=amd64",
		`--aptopt=Apt::Install-Recommends "false"`, "--include="+packages, "--customize-hook="+customize, debian, root,
		"deb "+mirror+"/debian "+debian+" main", "deb "+mirror+"/debian-security "+debian+"-security main"); err != nil {
		return err
	}
	for from, to := range map[string]string{"vmlinuz": i.Kernel, "initrd.img": i.Initrd} {
		if err := logged(ctx, log, "cp", "--dereference", filepath.Join(root, from), to); err != nil {
			return err
		}
	}
	file, err := os.Create(i.Disk)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(needsDisk), file.Close()); err != nil {
		return err
	}
	return logged(ctx, log, "mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, i.Disk)
}

// logged runs a command whose output goes to a file, of which an error shows the end.
func logged(ctx context.Context, log, name string, args ...string) error {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "10", name}, args...)...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w; %s ends with\n%s", name, err, log, tail(log, 15))
	}
	return nil
}

// tail is the last lines of a file.
func tail(file string, n int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return suites.Tail(string(data), n)
}
