package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestProgramPart(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-0085f000 r-xp 00000000 fe:00 1234    /bin/shim":          true,
		"0085f000-00d6a000 r--p 0045f000 fe:00 1234    /bin/shim":          true,
		"00d6a000-00da2000 rw-p 0096a000 fe:00 1234    /bin/shim":          false,
		"00d6a000-00da2000 r--s 0096a000 fe:00 1234    /bin/shim":          false,
		"00400000-0085f000 r-xp 00000000 fe:00 1234    /bin/other":         false,
		"00da2000-02ddc000 r-xp 00000000 00:00 0":                          false,
		"7ffd53297000-7ffd532b8000 rw-p 00000000 00:00 0          [stack]": false,
	} {
		p, ok := programPart(line, "/bin/shim")
		if ok != want || ok && p.length == 0 {
			t.Errorf("%q: %v, %v", line, p, ok)
		}
	}
	if len(programParts()) == 0 {
		t.Error("this program has no parts")
	}
	GiveBack() // and goes on after it
}

// A server that has come to rest holds no free heap and little garbage; its next work changes that.
func TestGiveBackHeapAfter(t *testing.T) {
	const usual, large = 80, 64 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(usual))
	worked := GiveBackHeapAfter(200 * time.Millisecond)
	if p := percent(); p != usual {
		t.Errorf("at first %d percent", p)
	}
	heap := make([]byte, large)
	for i := range heap {
		heap[i] = 1
	}
	runtime.KeepAlive(heap)
	worked()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		free := m.HeapIdle - m.HeapReleased
		if percent() == idlePercent && free < large/4 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("at rest %d percent, %d bytes of free heap", percent(), free)
		}
	}
	worked()
	if p := percent(); p != usual {
		t.Errorf("at work again %d percent", p)
	}
}

func percent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
