package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A scope of systemd goes as soon as it is empty: then the group above knows of the kills.
func TestKillsOfAGroupThatIsGone(t *testing.T) {
	above := t.TempDir()
	own := filepath.Join(above, "own")
	set := func(dir string, kills int) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), fmt.Appendf(nil, "low 0\nmax 9\noom 3\noom_kill %d\n", kills), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what                  string
		ownBefore, own, above int // kills; -1 = the group is not there. Above there was one before
		sigkill, want         bool
	}{
		{"none", 0, 0, 1, true, false},
		{"one", 0, 1, 2, true, true},
		{"one of a child, and init ended with a code", 0, 1, 2, false, true},
		{"one before", 1, 1, 1, true, false},
		{"of another in the pod", 0, 0, 2, true, false},
		{"one, and the group is gone", 0, -1, 2, true, true},
		{"one, of a group that was made later and is gone", -1, -1, 2, true, true},
		{"none, and the group is gone", 0, -1, 1, true, false},
		{"ended with a code, and the group is gone", 0, -1, 2, false, false},
	} {
		g := &Group{path: "/own", unified: true, dirs: map[string]string{"": own}}
		if err := os.RemoveAll(own); err != nil {
			t.Fatal(err)
		}
		set(above, 1)
		if c.ownBefore >= 0 {
			set(own, c.ownBefore)
		}
		k := g.KillsFromNow()
		set(above, c.above)
		if c.own < 0 {
			if err := os.RemoveAll(own); err != nil {
				t.Fatal(err)
			}
		} else {
			set(own, c.own)
		}
		if got := k.Any(c.sigkill); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
