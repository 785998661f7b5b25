package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/cmd/sunaba/wasm"
	"github.com/sunaba-project/sunaba/criserver/check"
	"github.com/sunaba-project/sunaba/tests/node"
)

// TestFaultsOfCompiledModules finds what a compilation that was killed has left, and entries that
// are damaged, and nothing else.
func TestFaultsOfCompiledModules(t *testing.T) {
	b := newWasmBench(t)
	n := wasm.Node{Cache: filepath.Join(b.dir, "root", "wasm")}
	faults := func(when string, want ...string) []check.Fault {
		t.Helper()
		found, err := n.Faults()
		if err != nil || len(found) != len(want) {
			t.Fatalf("%s: %+v, %v; want %q", when, found, err, want)
		}
		for i, f := range found {
			if !strings.Contains(f.Subject+": "+f.What, want[i]) {
				t.Errorf("%s: %q is about %q, not about %q", when, f.What, f.Subject, want[i])
			}
		}
		return found
	}
	faults("without a cache")

	out, _ := b.call(0, "compile", "--json", b.file("hello.wasm", cGuest(t, "hello")))
	var compiled []struct{ Digest, Entry string }
	if err := json.Unmarshal([]byte(out), &compiled); err != nil || len(compiled) != 1 {
		t.Fatalf("%s: %v", out, err)
	}
	faults("with an entry")

	cmd := b.command("compile", b.file("long.wasm", longModule()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	left := waitForWork(t, n.Cache)
	// The compiler outlives the command, and then its folder is nobody's all the same; here it
	// ends, so that it is known what is left.
	if err := unix.Kill(cmd.Process.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	faults("while it is compiled")
	for _, pid := range b.processes("compile") {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	// The compiler has the lock until the kernel has ended it.
	node.Within(comesWithin, func() bool {
		found, err := n.Faults()
		return err != nil || len(found) > 0
	})
	found := faults("after a compilation was killed", left)
	if err := found[0].Remove(); err != nil {
		t.Error(err)
	}
	faults("after that was removed")
	if kept, err := n.Kept(); err != nil || len(kept) != 1 {
		t.Errorf("there are %+v, %v", kept, err)
	}

	// An entry of another engine is no damaged one.
	other := filepath.Join(n.Cache, strings.TrimPrefix(compiled[0].Digest, "sha256:")+"-0123456789ab")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	faults("with an entry of another engine")
	for _, damage := range []func(file string) error{
		func(file string) error { return os.Truncate(file, 5) },
		os.Remove,
	} {
		for _, file := range []string{"module.wasm", "entry.json"} {
			if err := damage(filepath.Join(compiled[0].Entry, file)); err != nil {
				t.Fatal(err)
			}
			found := faults("with "+file+" damaged", "compiled module "+compiled[0].Digest+": it is damaged, ")
			if err := found[0].Remove(); err != nil {
				t.Error(err)
			}
			faults("after the entry was removed")
			b.call(0, "compile", filepath.Join(b.dir, "hello.wasm"))
			faults("compiled again")
		}
	}
}

// waitForWork waits until a module is being compiled, and returns the folder in which that is done.
func waitForWork(t *testing.T, cache string) string {
	t.Helper()
	for deadline := time.Now().Add(comesWithin); ; time.Sleep(time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(cache, "tmp-*", "out"))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 {
			return filepath.Dir(found[0])
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is compiled")
		}
	}
}
