package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
)

// The same commands do the same with a server and without one.
func TestImagesCommand(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test uses overlayfs: run it as root")
	}
	img, err := random.Image(2048, 2)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c.OS, c.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "app.tar")
	if err := tarball.WriteToFile(archive, name.MustParseReference("example.org/app:v1").(name.Tag), img); err != nil {
		t.Fatal(err)
	}
	shim := filepath.Join(t.TempDir(), "shim") // one that has compiled nothing
	if err := os.WriteFile(shim, []byte("#!/bin/sh\necho '[]'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, served := range []bool{false, true} {
		dir := t.TempDir()
		file := filepath.Join(dir, "config.toml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "shim = %q\n[images]\nkeep_layers = true\n", shim), 0o600); err != nil {
			t.Fatal(err)
		}
		p := places{root: filepath.Join(dir, "root"), state: filepath.Join(dir, "state")}
		if served {
			conf, err := readConfig(file)
			if err != nil {
				t.Fatal(err)
			}
			handlers, err := conf.handlers("runc")
			if err != nil {
				t.Fatal(err)
			}
			d := &daemon{places: p, logger: slog.New(slog.DiscardHandler)}
			if err := d.claim(); err != nil {
				t.Fatal(err)
			}
			store, _, err := openImages(conf, p, handlers, shim, nil, d.logger)
			if err != nil {
				t.Fatal(err)
			}
			d.close = append(d.close, store.Close)
			server, err := control.Listen(p.control(), store, d.logger)
			if err != nil {
				t.Fatal(err)
			}
			d.close = append(d.close, server.Close)
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		call := func(want int, args ...string) string {
			t.Helper()
			var out, errOut bytes.Buffer
			args = append([]string{"sunaba", "images", args[0], "--root", p.root, "--state", p.state, "--config", file}, args[1:]...)
			if code := run(args, &out, &errOut); code != want {
				t.Fatalf("%q: exit code %d, want %d\n%s%s", args, code, want, &out, &errOut)
			}
			return out.String() + errOut.String()
		}
		contains := func(text string, parts ...string) {
			t.Helper()
			for _, part := range parts {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in:\n%s", part, text)
				}
			}
		}
		if err := os.MkdirAll(p.root, 0o711); err != nil {
			t.Fatal(err)
		}
		contains(call(0, "import", archive), "example.org/app:v1", "runc,wasm", "app.tar: fetch")
		if ls := call(0, "ls"); ls != call(0, "list") {
			t.Errorf("ls prints\n%s", ls)
		}
		contains(call(0, "list"), "example.org/app:v1", "linux/"+runtime.GOARCH, "rootfs")
		var listed []struct {
			ID   string
			Tags []string
		}
		if err := json.Unmarshal([]byte(call(0, "list", "--json")), &listed); err != nil || len(listed) != 1 || listed[0].Tags[0] != "example.org/app:v1" {
			t.Fatalf("%+v, %v", listed, err)
		}
		contains(call(0, "list", "-o", "yaml"), "- digests:", "handlers:\n  - runc")
		if names := call(0, "list", "-o", "name", "--filter", "reference=example.org/*"); names != "example.org/app:v1\n" {
			t.Errorf("names %q", names)
		}
		if ids := call(0, "list", "-q", "--filter", "dangling=false"); ids != listed[0].ID+"\n" {
			t.Errorf("ids %q", ids)
		}
		contains(call(1, "list", "--filter", "size=1"), "filters are reference=PATTERN")
		contains(call(1, "pull", "-o", "xml", "127.0.0.1:1/x"), "table, wide, name, json or yaml")
		contains(call(0, "inspect", listed[0].ID[7:20]), `"manifest": "sha256:`, `"platform": "linux/`)
		contains(call(0, "check"), "1 images, 0 damaged")
		contains(call(0, "gc", "--dry-run"), "would remove 0 blobs, 0 layers and 0 compiled modules")
		to := filepath.Join(dir, "out.tar")
		call(0, "export", "-o", to, "example.org/app:v1")
		call(0, "export", "-o", filepath.Join(dir, "layout")+"/", listed[0].ID)
		contains(call(1, "export", "-o", filepath.Join(dir, "none.tar"), "absent"), "absent")
		if _, err := os.Stat(filepath.Join(dir, "none.tar")); !os.IsNotExist(err) {
			t.Errorf("a failed export left a file (%v)", err)
		}
		for _, from := range []string{to, filepath.Join(dir, "layout")} {
			contains(call(0, "remove", "example.org/app:v1"), "removed example.org/app:v1")
			contains(call(1, "remove", "example.org/app:v1"), "not found")
			contains(call(0, "import", from), "example.org/app:v1")
		}
		contains(call(0, "tag", "example.org/app:v1", "example.org/second:v1", "third"), "tagged example.org/second:v1\ntagged third\n")
		contains(call(0, "inspect", "-o", "yaml", "third"), "- docker.io/library/third:latest", "- example.org/app:v1")
		contains(call(1, "tag", "example.org/app:v1"), "at least one new name")
		contains(call(1, "tag", "example.org/app:v1", "x@sha256:"+strings.Repeat("a", 64)), "a digest cannot be given")
		contains(call(1, "tag", "absent", "x"), `tag image "absent": not found`)
		var out bytes.Buffer
		if code := run([]string{"sunaba", "rmi", "--root", p.root, "--state", p.state, "--config", file, "example.org/app:v1"}, &out, &out); code != 0 {
			t.Errorf("rmi: exit code %d, %s", code, &out)
		}
		contains(out.String(), "untagged example.org/app:v1")
		contains(call(1, "remove", listed[0].ID), "it has 2 names (docker.io/library/third:latest, example.org/second:v1)", "--force")
		contains(call(0, "rm", "--json", "third"), `"removed": []`, `"untagged": [`)
		contains(call(0, "rmi", "example.org/second:v1"), "removed example.org/second:v1")
		call(0, "import", to)
		call(0, "tag", "example.org/app:v1", "second")
		contains(call(0, "remove", "-f", listed[0].ID), "removed "+listed[0].ID)
		if left := call(0, "list", "-q"); left != "" {
			t.Errorf("left: %s", left)
		}
		call(0, "import", to)
		layers, err := filepath.Glob(filepath.Join(p.root, "images", "layers", "snapshots", "*", "fs"))
		if err != nil || len(layers) == 0 {
			t.Fatalf("layers %q, %v", layers, err)
		}
		if err := os.WriteFile(filepath.Join(layers[0], "intruder"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		contains(call(1, "check"), "is damaged", "to do: sunaba images check --repair", "1 damaged")
		contains(call(0, "check", "--repair"), "1 damaged")
		contains(call(0, "check"), "0 damaged")
		contains(call(1, "pull", "a:-x"), "a:-x")
		contains(call(1, "pull"), "want one argument")
		contains(call(1, "list", "x"), "not expected")
	}
}

// A slip in --root makes no store.
func TestImagesOfNoStore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("must run as root")
	}
	dir := t.TempDir()
	for _, command := range []string{"list", "gc", "check", "remove x", "inspect x", "export x", "pull x", "import x", "push x"} {
		var out, errOut strings.Builder
		args := append([]string{"sunaba", "images"}, strings.Fields(command)...)
		code := run(append(args, "--root", filepath.Join(dir, "slip"), "--state", filepath.Join(dir, "state")), &out, &errOut)
		if code != 1 || !strings.Contains(errOut.String(), "--root "+filepath.Join(dir, "slip")) {
			t.Errorf("%s: code %d, %s", command, code, errOut.String())
		}
	}
	if made, err := os.ReadDir(dir); len(made) > 0 || err != nil {
		t.Errorf("made %v, %v", made, err)
	}
}
