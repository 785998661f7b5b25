package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

const mib = 1 << 20

func TestEnginePart(t *testing.T) {
	for _, c := range []struct {
		entry compile.Entry
		want  uint64
	}{
		{compile.Entry{}, engineReserve},
		{compile.Entry{Size: 3 * mib}, engineReserve + 3*mib},
		{compile.Entry{Size: 30 * mib, Load: compile.Load{CodeSize: 20 * mib, ImageSize: 8 * mib}}, engineReserve + 2*mib},
	} {
		if got := enginePart(c.entry); got != c.want {
			t.Errorf("%+v: %d, want %d", c.entry, got, c.want)
		}
	}
}

func TestWithEngine(t *testing.T) {
	given := map[string]string{"memory.max": "1000", "memory.high": "max", "memory.low": "1000", "pids.max": "7"}
	for _, c := range []struct{ have, want cgroups.Resources }{
		{cgroups.Resources{}, cgroups.Resources{}},
		{cgroups.Resources{Memory: -1, MemorySwap: -1}, cgroups.Resources{Memory: -1, MemorySwap: -1}},
		{cgroups.Resources{Memory: 100, MemorySwap: 150, MemoryReservation: 50}, cgroups.Resources{Memory: 110, MemorySwap: 160, MemoryReservation: 50}},
		{cgroups.Resources{Memory: 1<<63 - 5}, cgroups.Resources{Memory: 1<<63 - 5}},
		{
			cgroups.Resources{Unified: given},
			cgroups.Resources{Unified: map[string]string{"memory.max": "1010", "memory.high": "max", "memory.low": "1000", "pids.max": "7"}},
		},
	} {
		got := c.have
		withEngine(&got, 10)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v became %+v, want %+v", c.have, got, c.want)
		}
	}
	if given["memory.max"] != "1000" {
		t.Error("the specification was changed")
	}
}

// TestGuestHasItsWholeLimit has a guest of each kind fill all the memory that its container may
// have, and no more.
func TestGuestHasItsWholeLimit(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		limit := int64(16 * mib)
		for name, c := range map[string]struct {
			args []string
			want string
		}{
			"probe":  {[]string{"grow"}, "grow=15\n"},
			"gotrap": {[]string{"fill", "12"}, "filled\n"},
		} {
			b := w.newBench(t, name, c.args...)
			b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
			if exit := b.runToEnd(); exit.Code != 0 || b.stdout.all() != c.want {
				t.Errorf("%s: %+v, %q, %q", name, exit, b.stdout.all(), b.stderr.all())
			}
		}
		b := withModule(t, memoryBomb, limit)
		b.way = w
		if exit := b.runToEnd(); exit.Code != 0 {
			t.Errorf("it wrote to all of it: %+v", exit)
		}
	})
}

// TestGuestBeyondItsLimit has guests end because their memory could not grow.
func TestGuestBeyondItsLimit(t *testing.T) {
	const limit = 16 * mib
	b := withModule(t, memoryTrap, limit)
	if exit := b.runToEnd(); exit.Code != 134 || !exit.OOMKilled || !strings.Contains(exit.Message, "unreachable") || !strings.Contains(exit.Message, "limit") {
		t.Errorf("trap: %+v", exit)
	}
	b = withModule(t, memoryBomb, limit)
	if exit := b.runToEnd(); exit.Code != 0 || exit.OOMKilled {
		t.Errorf("a guest that makes do: %+v", exit)
	}
	b = newBench(t, "gotrap", "fill", "64")
	most := int64(limit)
	b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &most}}
	if exit := b.runToEnd(); exit.Code != 2 || !exit.OOMKilled || !strings.Contains(b.stderr.all(), "out of memory") {
		t.Errorf("Go: %+v, %q", exit, b.stderr.all())
	}
}

// TestLimitOfTheCgroup has the engine's part beside the container's limit, from the beginning and
// after an update.
func TestLimitOfTheCgroup(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		b := w.newBench(t, "gotrap", "deadlock")
		limit, swap := int64(32*mib), int64(40*mib)
		b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit, Swap: &swap}}
		c := b.create().(*container)
		check := func(when string) {
			part := int64(enginePart(c.entry))
			if got, want := limitOf(t, c), fmt.Sprint(limit+part); part < engineReserve || got != want {
				t.Errorf("%s: the cgroup is limited to %s, want %s", when, got, want)
			}
		}
		check("at first")
		limit, swap = 64*mib, 64*mib
		if err := c.Update(t.Context(), &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit, Swap: &swap}}); err != nil {
			t.Fatal(err)
		}
		check("after an update")
	})
}

func limitOf(t *testing.T, c shim.Container) string {
	t.Helper()
	for _, file := range []string{"/sys/fs/cgroup/memory%s/memory.limit_in_bytes", "/sys/fs/cgroup%s/memory.max"} {
		if data, err := os.ReadFile(filepath.Clean(fmt.Sprintf(file, c.Cgroup()))); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	t.Error("no limit of memory")
	return ""
}
