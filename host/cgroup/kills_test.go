package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A scope of systemd goes as soon as it is empty: then the group above knows of the kills, and the
// books of the other groups say whose they were.
func TestKillsOfGroupsThatAreGone(t *testing.T) {
	pod := t.TempDir()
	set := func(name string, kills int) {
		t.Helper()
		dir := filepath.Join(pod, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), fmt.Appendf(nil, "low 0\nmax 9\noom 3\noom_kill %d\n", kills), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(pod, name)); err != nil {
			t.Fatal(err)
		}
	}
	var ledger Ledger
	open := func(name string) *Kills {
		return ledger.Open((&Mounts{Unified: pod}).Group(name))
	}
	closes := func(what string, k *Kills, want bool) {
		t.Helper()
		for range 2 {
			if got := k.Close(); got != want {
				t.Errorf("%s: %v", what, got)
			}
		}
	}

	set(".", 7) // of containers before
	set("old", 2)
	old := open("old") // was there, with kills, before the books
	a, b, c, d, e := open("a"), open("b"), open("c"), open("d"), open("e")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		set(name, 0)
	}
	set("a", 1)
	set(".", 8)
	closes("a group that is there", a, true)
	gone("a")
	gone("b")
	closes("a group that is gone, and another was hit", b, false)
	gone("c")
	set(".", 9)
	closes("a group that is gone and was hit", c, true)
	set("d", 3)
	set(".", 12)
	gone("e")
	closes("a group that is gone, and one that is open was hit", e, false)
	gone("d")
	closes("a group whose kills another has seen before it went", d, true)
	closes("a group with old kills", old, false)
	if len(ledger.pods) != 0 {
		t.Errorf("the ledger keeps %d accounts", len(ledger.pods))
	}
	f := open("f")
	set(".", 13)
	closes("a group that never was, in books opened anew", f, true)
}
