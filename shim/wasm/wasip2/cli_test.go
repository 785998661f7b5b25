package wasip2

import (
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
	"github.com/sunaba-project/sunaba/tests/pty"
)

func TestEnvironment(t *testing.T) {
	dir := t.TempDir()
	g := newGuest(t, Config{
		Args: []string{"prog", "", "ä b"}, Env: []string{"A=1", "B=x=y", "C", "PWD=/work"}, Stdin: -1, Stdout: -1, Stderr: -1,
		Preopens: []Preopen{{FD: wasitest.OpenDir(t, dir), Name: "/"}, {FD: wasitest.OpenDir(t, dir), Name: "ä", ReadOnly: true}},
	})
	strings := func(name string, size uint32, at ...uint32) (all []string) {
		g.do(name, out)
		for i := range g.u32(out + 4) {
			for _, offset := range at {
				all = append(all, g.text(g.u32(out)+size*i+offset))
			}
		}
		return all
	}
	same(t, "arguments", strings("cli/environment#get-arguments", 8, 0), []string{"prog", "", "ä b"})
	same(t, "environment", strings("cli/environment#get-environment", 16, 0, 8), []string{"A", "1", "B", "x=y", "C", "", "PWD", "/work"})
	same(t, "preopens", strings("filesystem/preopens#get-directories", 12, 4), []string{"/", "ä"})
	if g.do("cli/environment#initial-cwd", out); g.u8(out) != 1 || g.text(out+4) != "/work" {
		t.Errorf("initial-cwd: %d, %q", g.u8(out), g.text(out+4))
	}
	g = newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	if g.do("cli/environment#initial-cwd", out); g.u8(out) != 0 {
		t.Error("there is no working directory")
	}
	if got := strings("cli/environment#get-arguments", 8, 0); got != nil {
		t.Errorf("arguments: %q", got)
	}
}

// TestTerminals are those of the standard streams that are terminals.
func TestTerminals(t *testing.T) {
	_, slave := pty.Open(t)
	terminal := int(slave.Fd())
	g := newGuest(t, Config{Stdin: terminal, Stdout: -1, Stderr: terminal})
	for name, want := range map[string]string{"stdin": "terminal-input", "stdout": "", "stderr": "terminal-output"} {
		g.do("cli/terminal-"+name+"#get-terminal-"+name, out)
		if got := g.u8(out) == 1; got != (want != "") {
			t.Errorf("%s: %t", name, got)
		}
		if want != "" {
			g.do("cli/"+want+"#[resource-drop]"+want, uint64(g.u32(out+4)))
		}
	}
}

func TestClocks(t *testing.T) {
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	before := g.do("clocks/monotonic-clock#now")
	p := g.do("clocks/monotonic-clock#subscribe-instant", before+uint64(20*time.Millisecond))
	g.do("io/poll#[method]pollable.block", p)
	if after := g.do("clocks/monotonic-clock#now"); after < before+uint64(20*time.Millisecond) {
		t.Errorf("%d, then %d", before, after)
	}
	if n := g.do("clocks/monotonic-clock#resolution"); n < 1 || n > 1e9 {
		t.Errorf("resolution %d", n)
	}
	g.do("clocks/wall-clock#now", out)
	if now := time.Unix(int64(g.u64(out)), int64(g.u32(out+8))); time.Since(now).Abs() > time.Minute || g.u32(out+8) >= 1e9 {
		t.Errorf("wall clock: %v", now)
	}
	if g.do("clocks/wall-clock#resolution", out); g.u64(out) != 0 || g.u32(out+8) < 1 {
		t.Errorf("resolution %d s, %d ns", g.u64(out), g.u32(out+8))
	}
}

func TestRandom(t *testing.T) {
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	for _, name := range []string{"random/random#get-random-bytes", "random/insecure#get-insecure-random-bytes"} {
		g.do(name, 32, out)
		one := g.text(out)
		g.do(name, 32, out)
		if two := g.text(out); len(one) != 32 || one == two {
			t.Errorf("%s: %x, %x", name, one, two)
		}
		if g.do(name, 0, out); g.u32(out+4) != 0 {
			t.Errorf("%s: %d bytes for none", name, g.u32(out+4))
		}
	}
	for _, name := range []string{"random/random#get-random-u64", "random/insecure#get-insecure-random-u64"} {
		if one, two := g.do(name), g.do(name); one == two {
			t.Errorf("%s: the same again", name)
		}
	}
	g.do("random/insecure-seed#insecure-seed", out)
	seed := [2]uint64{g.u64(out), g.u64(out + 8)}
	if g.do("random/insecure-seed#insecure-seed", out); seed != [2]uint64{g.u64(out), g.u64(out + 8)} || seed[0] == seed[1] {
		t.Errorf("seed %x", seed)
	}
}
