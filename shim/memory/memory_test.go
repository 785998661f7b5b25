package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

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
