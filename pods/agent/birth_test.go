package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The node's events at the start of its agent are a kubelet's: each start is counted, a reboot is
// told once, and a reboot that is on record is told already.
func TestNodeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one := func(before NodeEvent) map[string]int32 {
			t.Helper()
			o := w.options()
			o.Before = []NodeEvent{before}
			w.startWith(o)
			w.settle(time.Second)
			boot, err := os.ReadFile(filepath.Join(w.dir, "pods", "boot"))
			if err != nil || string(boot) != w.boot+"\n" {
				t.Errorf("boot on record: %q, %v", boot, err)
			}
			kept, err := os.ReadFile(filepath.Join(w.dir, "state", "events"))
			if err != nil || w.boot != "boot-1" && !strings.Contains(string(kept), "Rebooted") {
				t.Errorf("events on record: %s, %v", kept, err)
			}
			counts := map[string]int32{}
			var order []string
			for _, e := range w.agent.Events() {
				if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == "till-4" {
					counts[e.Type+" "+e.Reason+": "+e.Message] = e.Count
					order = append(order, e.Reason)
				}
			}
			if slices.Index(order, "Starting") > slices.Index(order, "NodeHasSufficientMemory") {
				t.Errorf("order %q", order)
			}
			w.stop()
			return counts
		}
		const enforced = "Updated Node Allocatable limit across pods"
		check := func(what string, got, want map[string]int32) {
			t.Helper()
			for _, reason := range []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"} {
				want["Normal "+reason+": Node till-4 status is now: "+reason] = want["Normal Starting: Starting sunaba."]
			}
			want["Normal NodeAllocatableEnforced: "+enforced] = want["Normal Starting: Starting sunaba."]
			for text, n := range want {
				if got[text] != n {
					t.Errorf("%s: %q happened %d times, want %d", what, text, got[text], n)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: events %v", what, got)
			}
		}
		e := NodeEvent{"Normal", "NodeAllocatableEnforced", enforced}
		const rebooted = "Warning Rebooted: Node till-4 has been rebooted, boot id: boot-2"
		check("first start", one(e), map[string]int32{"Normal Starting: Starting sunaba.": 1})
		check("second start", one(e), map[string]int32{"Normal Starting: Starting sunaba.": 2})
		w.boot = "boot-2"
		check("after a reboot", one(e), map[string]int32{"Normal Starting: Starting sunaba.": 3, rebooted: 1})
		check("second start after it", one(e), map[string]int32{"Normal Starting: Starting sunaba.": 4, rebooted: 1})
	})
}
