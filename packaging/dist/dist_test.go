package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spdx/tools-golang/json"
)

// release is what dist makes of a small program in place of both.
func release(t *testing.T) options {
	t.Helper()
	dir := t.TempDir()
	said(t, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "program"), "../man")
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range arches {
		write("programs/"+a.name+"/sunaba", program)
		write("programs/"+a.name+"/containerd-shim-sunaba-v1", program)
	}
	for _, name := range []string{"man/sunaba.1", "man/sunaba-serve.1", "completion/bash", "completion/zsh", "completion/fish"} {
		write("share/"+name, []byte(name))
	}
	return options{
		version: "0.3.0-rc.1+abc", date: time.Unix(1_700_000_000, 0).UTC(), programs: filepath.Join(dir, "programs"), share: filepath.Join(dir, "share"),
		out: filepath.Join(dir, "out"), source: "..", formats: []string{"tar", "deb", "rpm"},
	}
}

// said runs a command and returns what it prints.
func said(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestRelease(t *testing.T) {
	o := release(t)
	if err := o.make("amd64,arm"); err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(os.DirFS(o.out), "*")
	if err != nil {
		t.Fatal(err)
	}
	want := "SHA256SUMS sunaba-0.3.0-rc.1+abc-linux-amd64.spdx.json sunaba-0.3.0-rc.1+abc-linux-amd64.tar.gz " +
		"sunaba-0.3.0-rc.1+abc-linux-armv7.spdx.json sunaba-0.3.0-rc.1+abc-linux-armv7.tar.gz " +
		"sunaba-0.3.0~rc.1+abc-1.armv7hl.rpm sunaba-0.3.0~rc.1+abc-1.x86_64.rpm sunaba_0.3.0~rc.1+abc-1_amd64.deb sunaba_0.3.0~rc.1+abc-1_armhf.deb"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("made %s\nwant %s", got, want)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = o.out
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != len(names)-1 {
		t.Errorf("checksums: %v\n%s", err, out)
	}

	deb := filepath.Join(o.out, "sunaba_0.3.0~rc.1+abc-1_amd64.deb")
	if got := said(t, "dpkg-deb", "-I", deb, "conffiles"); got != "/etc/sunaba/config.toml\n" {
		t.Errorf("files that the administrator may change: %q", got)
	}
	list := said(t, "dpkg-deb", "-c", deb)
	for _, line := range []string{"-rwxr-xr-x root/root", " ./usr/bin/sunaba\n", " ./usr/bin/containerd-shim-sunaba-v1\n", " ./usr/lib/systemd/system/sunaba.service\n", " ./usr/share/man/man1/sunaba-serve.1.gz\n", " ./usr/share/zsh/site-functions/_sunaba\n"} {
		if !strings.Contains(list, line) {
			t.Errorf("the package lacks %q:\n%s", line, list)
		}
	}
	if strings.Contains(list, "local") || !strings.Contains(list, "2023-11-14 ") {
		t.Errorf("the package's places or dates:\n%s", list)
	}
	unit := said(t, "tar", "xOzf", filepath.Join(o.out, "sunaba-0.3.0-rc.1+abc-linux-armv7.tar.gz"), "sunaba-0.3.0-rc.1+abc-linux-armv7/lib/systemd/system/sunaba.service")
	if !strings.Contains(unit, "\nLimitNOFILE=1048576\n") { // containers have it too, and a higher one slows programs down
		t.Errorf("limit of open files of the unit:\n%s", unit)
	}
	if !strings.Contains(unit, "\nExecStart=/usr/local/bin/sunaba serve\n") {
		t.Errorf("the archive's unit:\n%s", unit)
	}
}

// A program's list has its modules and Go itself, and can be read back. This test has modules.
func TestBill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bill")
	if err := writeBill(file, "it", "1.2.3", time.Unix(1, 0), self); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bill, err := json.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]string{}
	for _, p := range bill.Packages {
		packages[p.PackageName] = p.PackageVersion
	}
	if packages[filepath.Base(self)] != "1.2.3" || packages["github.com/goreleaser/nfpm/v2"] == "" || packages["stdlib"] == "" {
		t.Errorf("the list of what is in it: %v", packages)
	}
	if err := writeBill(file, "it", "1.2.3", time.Unix(1, 0), "/bin/sh"); err == nil {
		t.Error("a program that is not Go's has a list")
	}
}

func TestSameBytes(t *testing.T) {
	o := release(t)
	first, second := filepath.Join(o.out, "1"), filepath.Join(o.out, "2")
	for _, out := range []string{first, second} {
		o.out = out
		if err := o.make("riscv64"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond) // formats tell time in seconds
	}
	names, _ := filepath.Glob(first + "/*")
	if len(names) != 5 {
		t.Fatalf("made %v", names)
	}
	for _, name := range names {
		a, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(second, filepath.Base(name))); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s was made twice and is not the same, %v", filepath.Base(name), err)
		}
	}
}

func TestWrongArchitecture(t *testing.T) {
	o := release(t)
	if err := o.make("mips"); err == nil || !strings.Contains(err.Error(), `"mips"`) {
		t.Errorf("error %v", err)
	}
	o.programs = t.TempDir()
	if err := o.make("amd64"); err == nil || !strings.Contains(err.Error(), "run make first") {
		t.Errorf("without programs: %v", err)
	}
}

// What is installed is removed again, but for the configuration; one that is there stays as it is.
func TestInstall(t *testing.T) {
	o := release(t)
	dest := t.TempDir()
	config := filepath.Join(dest, "etc/sunaba/config.toml")
	install := func(action string) {
		t.Helper()
		args := []string{action, dest, "/opt/it", "/opt/it/units"}
		if action == "install" {
			args = append(args, filepath.Join(o.programs, "amd64"), o.share)
		}
		said(t, "../install.sh", args...)
	}
	files := func() (all []string) {
		t.Helper()
		err := filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all = append(all, strings.TrimPrefix(path, dest))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	install("install")
	if got := files(); len(got) != 12 {
		t.Errorf("installed %d files: %v", len(got), got)
	}
	if err := os.WriteFile(config, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	install("install")
	if got, err := os.ReadFile(config); err != nil || string(got) != "mine" {
		t.Errorf("the configuration became %q, %v", got, err)
	}
	install("remove")
	if got := files(); len(got) != 1 || got[0] != "/etc/sunaba/config.toml" {
		t.Errorf("left %v", got)
	}
	install("remove")
}
