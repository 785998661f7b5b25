package main

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The folders of a server are those that links lead to, whether they exist yet or not. A link to
// nothing, as of a disk that is not mounted, is refused: nothing is written in its place.
func TestPlacesBehindLinks(t *testing.T) {
	dir := t.TempDir()
	disk, link, dangling, loop := filepath.Join(dir, "disk"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling"), filepath.Join(dir, "loop")
	for _, err := range []error{
		os.Mkdir(disk, 0o755), os.Symlink("disk", link), os.Symlink(filepath.Join(dir, "unmounted", "sunaba"), dangling), os.Symlink("loop", loop),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for given, want := range map[string]string{
		disk: disk, link: disk, filepath.Join(link, "new", "folder"): filepath.Join(disk, "new", "folder"), link + "/../link/": disk,
		filepath.Join(dir, "new"): filepath.Join(dir, "new"),
	} {
		p := places{root: given, state: given, socket: filepath.Join(given, "socket")}
		if err := p.resolve(); err != nil || p.root != want || p.state != want || p.socket != filepath.Join(given, "socket") {
			t.Errorf("%s: %+v, %v; want %s", given, p, err, want)
		}
	}
	for given, says := range map[string]string{
		dangling: "unmounted/sunaba\", which does not exist", filepath.Join(dangling, "root"): "mount its disk", loop: "too many links",
		filepath.Join(dir, "file", "root"): "not a directory",
	} {
		p := places{root: given, state: disk}
		if err := p.resolve(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, which does not say %q", given, err, says)
		}
	}
}

// The bridge of the standard root is the same wherever a link in its place leads, and by whatever
// path it is given.
func TestBridgeOfTheStandardRoot(t *testing.T) {
	p := defaultPlaces()
	if err := p.resolve(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/var/lib", link); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"/var/lib/../lib/sunaba", filepath.Join(link, "sunaba")} {
		if named := (places{root: root}); named.resolve() != nil || !named.standard {
			t.Errorf("%s is not the standard root", root)
		}
	}
	p.root = "/data/sunaba"
	if got := networkOptions(config{}, p, nil).Embedded.Bridge; cmp.Or(got, "sunaba0") != "sunaba0" {
		t.Errorf("the bridge is %s", got)
	}
	p.standard = false
	if got := networkOptions(config{}, p, nil).Embedded.Bridge; got == "" || got == "sunaba0" {
		t.Errorf("the bridge is that of the standard root")
	}
}
