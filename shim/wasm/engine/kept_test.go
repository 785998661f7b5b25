package engine

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// What a guest runs is told from what nobody runs.
func TestCacheKnowsWhatRuns(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	e, err := New(Options{Self: os.Getenv("SUNABA_SHIM"), CacheDir: t.TempDir()}, shared.reaper) // other tests' guests run in the other cache
	if err != nil {
		t.Fatal(err)
	}
	b.engine = e
	running := func() bool {
		t.Helper()
		kept, err := compile.List(b.engine.options.CacheDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range kept {
			if k.Running {
				return true
			}
		}
		return false
	}
	p := b.create().Init()
	start(t, p)
	b.stdout.await(t, "sleep=on")
	if !running() {
		t.Error("a running guest is not seen")
	}
	signal(t, p, unix.SIGKILL)
	ended(t, p)
	eventually(t, "a guest that has ended is not seen", func() bool { return !running() })
}
