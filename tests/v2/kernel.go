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
)

// kept makes a folder once for each key, with make, and keeps it in the user's cache folder, where
// the next clone finds it. One that was not finished is never taken for a whole one.
func (s *settings) kept(name string, key []byte, text string, make func(folder string) error) (string, error) {
	sum := sha256.Sum256(key)
	folder := filepath.Join(s.cache, name+"-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		return folder, err
	}
	s.say("%s; it is kept in %s", text, folder)
	if err := os.MkdirAll(s.cache, 0o755); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(s.cache, "partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	if err := make(partial); err != nil {
		return "", err
	}
	if err := os.Rename(partial, folder); err != nil {
		return "", fmt.Errorf("keep %q: %w", folder, err)
	}
	return folder, nil
}

// kernel is the file of the kernel, built without one of this configuration.
func (s *settings) kernel(ctx context.Context) (string, error) {
	script := filepath.Join(s.root, "tests/v2/kernel.sh")
	var key []byte
	for _, file := range []string{script, filepath.Join(s.root, "tests/v2/uml.config")} {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		key = append(key, data...)
	}
	folder, err := s.kept("kernel", key, "building the kernel takes some six minutes on two processors", func(folder string) error {
		return errors.Join(
			s.tell(ctx, filepath.Join(s.root, "tests/setup.sh"), "flex:flex", "bison:bison", "bc:bc", "gcc:gcc", "xz:xz-utils", "/usr/include/stdio.h:libc6-dev"),
			s.tell(ctx, script, folder))
	})
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(folder, "source"))
	if err != nil {
		return "", err
	}
	s.say("%-17s %s", "kernel of", strings.TrimSpace(string(source)))
	return filepath.Join(folder, "linux"), nil
}

// systemdPackages are what a root file system with systemd has beside the packages of
// tests/setup.sh.
var systemdPackages = []string{"systemd", "systemd-sysv", "dbus", "udev", "procps", "kmod", "apparmor", "ca-certificates", "make", "sudo"}

// tree is the folder of a root file system with systemd, made without one of these packages.
func (s *settings) tree(ctx context.Context) (string, error) {
	setup := filepath.Join(s.root, "tests/setup.sh")
	out, err := exec.CommandContext(ctx, setup, "--packages").Output()
	if err != nil {
		return "", fmt.Errorf("ask %q for its packages: %w", setup, err)
	}
	packages := strings.Join(append(strings.Fields(string(out)), systemdPackages...), ",")
	mirror := os.Getenv("DEBIAN_MIRROR")
	if mirror == "" {
		uris, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)").Output()
		if err != nil {
			return "", fmt.Errorf("ask apt for its mirror (or name one in DEBIAN_MIRROR): %w", err)
		}
		for uri := range strings.FieldsSeq(string(uris)) {
			if strings.HasSuffix(uri, "/debian/") {
				mirror = uri
				break
			}
		}
	}
	folder, err := s.kept("tree", []byte(packages), "making a root file system with systemd takes a minute", func(folder string) error {
		return errors.Join(
			s.tell(ctx, setup, "mmdebstrap:mmdebstrap"),
			s.tell(ctx, "nice", "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", `--aptopt=Apt::Install-Recommends "false"`, "--include="+packages,
				"bookworm", filepath.Join(folder, "root"), "deb "+mirror+" bookworm main"))
	})
	return filepath.Join(folder, "root"), err
}
