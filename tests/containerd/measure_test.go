package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/tests/leftovers"
)

// TestShimMemory puts pods with containerd's own shim and with ours side by side, and says what a
// shim costs: its proportional share of memory. Ours must not cost more.
func TestShimMemory(t *testing.T) {
	const pods = 10
	b := newBench(t, world.releases[len(world.releases)-1])
	b.image(world.busybox)
	b.image(world.asLinux)
	var all []*pod
	for i := range pods {
		for _, handler := range []string{"runc", "sunaba", "sunaba-wasm"} {
			p := b.runPod(handler, name(handler, i), nil)
			if handler == "sunaba-wasm" {
				p.begin("a", world.asLinux, []string{"/guest.wasm", "idle"}, nil)
			} else {
				p.begin("a", world.busybox, []string{"/bin/sleep", "1000"}, nil)
			}
			all = append(all, p)
		}
	}
	time.Sleep(2 * time.Second) // what a start needed is given back
	median := map[string]float64{}
	for program, prefix := range map[string]string{"containerd-shim-runc-v2": "runc", "containerd-shim-sunaba-v1": "sunaba"} {
		var pids []int
		want := pods * strings.Count("runc sunaba sunaba-wasm", prefix)
		b.eventually(fmt.Sprintf("there are %d processes of %s", want, program), func() bool { // one of them may be making another
			pids = b.running(program)
			return len(pids) == want
		})
		var sizes []float64
		for _, pid := range pids {
			sizes = append(sizes, pss(t, pid))
		}
		slices.Sort(sizes)
		if len(sizes) != want {
			t.Fatalf("%d processes of %s, want %d", len(sizes), program, want)
		}
		median[prefix] = sizes[len(sizes)/2]
		t.Logf("%-26s PSS in MiB: median %.2f, least %.2f, most %.2f of %d", program, median[prefix], sizes[0], sizes[len(sizes)-1], len(sizes))
	}
	if median["sunaba"] > median["runc"] {
		t.Errorf("our shim costs %.2f MiB, containerd's own %.2f", median["sunaba"], median["runc"])
	}
	for _, p := range all {
		p.remove()
	}
}

// running are the processes of the daemon's that run a program of this name, but for guests.
func (b *bench) running(program string) []int {
	b.t.Helper()
	var pids []int
	for _, pid := range must(leftovers.Processes(leftovers.Scope{Dirs: []string{b.Dir}}))(b.t) {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if filepath.Base(exe) == program && !strings.Contains(string(cmdline), "guest") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pss is a process's proportional share of memory in MiB.
func pss(t *testing.T, pid int) float64 {
	t.Helper()
	for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)))(t))) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			return float64(must(strconv.Atoi(fields[1]))(t)) / 1024
		}
	}
	t.Fatalf("process %d has no Pss", pid)
	return 0
}
