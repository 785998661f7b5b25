package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/link"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

func TestPlanMount(t *testing.T) {
	const ro = unix.MOUNT_ATTR_RDONLY
	for _, c := range []struct {
		mount link.Mount
		want  plan
	}{
		{link.Mount{Type: "bind"}, plan{bind: true, set: strict, propagation: unix.MS_PRIVATE, data: []string{"mode=1777"}}},
		{link.Mount{Options: []string{"rbind", "rslave", "ro", "rw", "suid"}},
			plan{bind: true, recursive: true, set: strict | ro, propagation: unix.MS_SLAVE, data: []string{"mode=1777"}}},
		{link.Mount{Type: "none", Options: []string{"rbind", "rro", "rshared", "noatime"}},
			plan{bind: true, recursive: true, set: strict | unix.MOUNT_ATTR_NOATIME, setRecursively: ro, propagation: unix.MS_SLAVE, data: []string{"mode=1777"}}},
		{link.Mount{Type: "tmpfs", Options: []string{"size=1m", "mode=700", "nosuid", "tmpcopyup"}},
			plan{set: strict, propagation: unix.MS_PRIVATE, data: []string{"size=1m", "mode=700"}}},
	} {
		if got := planMount(c.mount); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v:\ngot  %+v\nwant %+v", c.mount, got, c.want)
		}
	}
}

func openTree(t *testing.T, dir string) *tree {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &tree{fd}
}

func TestPlaceMakesWhatIsMissingInside(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for link, target := range map[string]string{
		"abs": "/real", "rel": "real/deep", "up": "../../../../../../../.." + outside, "out": outside,
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "real/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		dir  bool
		want string // below root, "" = an error
	}{
		{"/a/b/c", true, "a/b/c"},
		{"a/f", false, "a/f"},
		{"/a/f", false, "a/f"},
		{"/abs/new", true, "real/new"},
		{"/rel/file", false, "real/deep/file"},
		{"/../../x", true, "x"},
		{"/up/new", true, ""},
		{"/out/new", true, ""},
		{"/a/f/below", true, ""},
		{"/", true, "."},
	} {
		at, err := openTree(t, root).place(c.name, c.dir)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: no error", c.name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", at.fd))
		want, wantErr := os.Stat(filepath.Join(root, c.want))
		if err != nil || wantErr != nil || !os.SameFile(got, want) || got.IsDir() != c.dir {
			t.Errorf("%s: got %v, %v; want %v, %v", c.name, got, err, want, wantErr)
		}
		at.close()
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("outside holds %v, %v", entries, err)
	}
}

// TestEndForLackOfMemory tells codes of guests that end because their memory could not grow from
// others.
func TestEndForLackOfMemory(t *testing.T) {
	for code, want := range map[uint32]bool{exitTrap: true, 2: true, 0: false, 1: false, 3: false} {
		if forMemory(code) != want {
			t.Errorf("code %d: %t", code, !want)
		}
	}
}

func TestEnding(t *testing.T) {
	for _, c := range []struct {
		err  error
		code uint32
		text string
	}{
		{nil, 0, ""},
		{sys.NewExitError(0), 0, ""},
		{fmt.Errorf("wrapped: %w", sys.NewExitError(300)), 300, ""},
		{errors.New("wasm error: unreachable\nwasm stack trace:\n\t.f()\n\t.g(i32)"), exitTrap, "wasm trap: unreachable, in f"},
		{errors.New("wasm error: integer divide by zero\nwasm stack trace:\n\tapp.main.(*T).Method(i32,i64) i32\n\t.g(i32)"), exitTrap,
			"wasm trap: integer divide by zero, in app.main.(*T).Method"},
		{errors.New("wasm error: unreachable\nwasm stack trace:\n\t.$7() (i32,i32)"), exitTrap, "wasm trap: unreachable, in $7"},
		{errors.New("module[] function[_start] failed: wasm error: out of bounds memory access\nwasm stack trace:"), exitTrap, "wasm trap: out of bounds memory access"},
	} {
		if code, text := (&process{}).ending(c.err); code != c.code || text != c.text {
			t.Errorf("%v: got %d, %q", c.err, code, text)
		}
	}
}

func TestListenEnv(t *testing.T) {
	if got := listenEnv(nil); got != nil {
		t.Errorf("got %q", got)
	}
	got := listenEnv([]wasip1.Listener{{Name: "http"}, {Name: "a:b"}})
	if want := []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=http:a_b"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestTrapped(t *testing.T) {
	for stack, want := range map[string]string{
		"":               "",
		"wasm error: x":  "",
		"a\n\tm.f(i32)":  "m.f",
		"a\n\t.f() i32":  "f",
		"a\n\t\n\tm.f()": "m.f",
		"a\n\t m.f()\n\tm.<T as (u8, B)>::g(i32,i64) i32\n\tm.h()": "m.<T as (u8, B)>::g",
		"a\n\tm.f(i32":           "",
		"a\n\t()":                "",
		"a\n\t(())":              "(",
		"a\n\tm.\x01()\n\tm.g()": "",
		"a\n\t" + strings.Repeat("x", 257) + "()": "",
	} {
		if got := trapped(stack); got != want {
			t.Errorf("%q: got %q, want %q", stack, got, want)
		}
	}
}

func TestGuestNamesItsAuthorities(t *testing.T) {
	var p process
	p.guest.root = &tree{fd: -1}
	if c := p.clientConfig(); c.CertFile != "" {
		t.Errorf("without a name: %q", c.CertFile)
	}
	p.config.Env = []string{"A=SSL_CERT_FILE=no", "SSL_CERT_FILE=/my/roots.pem", "B=1"}
	if c := p.clientConfig(); c.CertFile != "/my/roots.pem" {
		t.Errorf("got %q", c.CertFile)
	}
}
