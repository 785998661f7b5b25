package wasip1

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/sys"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

func TestArgsEnviron(t *testing.T) {
	c := newCaller(t, Config{Args: []string{"prog", "", "ä b"}, Env: []string{"A=1", "B="}})
	for _, test := range []struct {
		name string
		list []string
		size uint32
	}{{"args", []string{"prog", "", "ä b"}, 5 + 1 + 5}, {"environ", []string{"A=1", "B="}, 4 + 3}} {
		c.must(test.name+"_sizes_get", atResult, atResult+4)
		if n, size := c.U32(atResult), c.U32(atResult+4); int(n) != len(test.list) || size != test.size {
			t.Errorf("%s: %d strings, %d bytes", test.name, n, size)
		}
		c.must(test.name+"_get", atSubs, atText)
		for i, want := range test.list {
			at := c.U32(atSubs + 4*uint32(i))
			if got := string(c.Bytes(at, uint32(len(want))+1)); got != want+"\x00" {
				t.Errorf("%s %d is %q", test.name, i, got)
			}
		}
	}
}

func TestClocks(t *testing.T) {
	c := newCaller(t, Config{})
	for clock := range uint64(4) {
		c.must("clock_res_get", clock, atData)
		if c.U64(atData) == 0 {
			t.Errorf("clock %d has no resolution", clock)
		}
		c.must("clock_time_get", clock, 0, atData)
		first := c.U64(atData)
		c.must("clock_time_get", clock, 0, atData)
		if first == 0 || c.U64(atData) < first {
			t.Errorf("clock %d went from %d to %d", clock, first, c.U64(atData))
		}
	}
	c.must("clock_time_get", 0, 0, atData)
	if d := time.Since(time.Unix(0, int64(c.U64(atData)))); d < 0 || d > wasitest.Patience {
		t.Errorf("the real time is %v off", d)
	}
	c.want(einval, "clock_time_get", 4, 0, atData)
	c.want(einval, "clock_res_get", 4, atData)
}

// TestClockOfThreadThatChanges reads a guest's CPU clocks on one thread and then on another, which
// has worked less: the Go runtime moves a guest from one to another when it waits.
func TestClockOfThreadThatChanges(t *testing.T) {
	c := newCaller(t, Config{})
	for clock := range uint64(4) {
		var times [2]uint64
		for n := range times {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // for good: the thread ends with this goroutine
				for begun := time.Now(); n == 0 && time.Since(begun) < 20*time.Millisecond; {
				}
				c.must("clock_time_get", clock, 0, atData)
				times[n] = c.U64(atData)
			}()
			<-done
		}
		if times[1] < times[0] {
			t.Errorf("clock %d went from %d to %d", clock, times[0], times[1])
		}
	}
}

func TestRandomYield(t *testing.T) {
	c := newCaller(t, Config{})
	c.must("random_get", atData, 0)
	c.must("random_get", atData, 50000)
	if b := c.Bytes(atData, 50000); bytes.Count(b, []byte{0}) > 1000 {
		t.Error("not random")
	}
	c.must("sched_yield")
}

func TestExitRaise(t *testing.T) {
	ended := func(want uint32, name string, param uint64) {
		t.Helper()
		c := newCaller(t, Config{})
		_, err := c.Mod.ExportedFunction(name).Call(context.Background(), param)
		var exit *sys.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want {
			t.Errorf("%s(%d) ended with %v", name, param, err)
		}
	}
	ended(0, "proc_exit", 0)
	ended(33, "proc_exit", 33)
	ended(0xffffffff, "proc_exit", 0xffffffff)
	ended(128+6, "proc_raise", 6)
	ended(128+15, "proc_raise", 15)
	ended(128+31, "proc_raise", 30) // SYS, numbered as on Linux
	c := newCaller(t, Config{})
	for _, ignored := range []uint64{0, 13, 16, 17, 22, 27} {
		c.must("proc_raise", ignored)
	}
	c.want(enotsup, "proc_raise", 18)
	c.want(einval, "proc_raise", 31)
}
