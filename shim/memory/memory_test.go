package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
	"unsafe"
)

// A server that has come to rest holds no free heap and little garbage; its next work changes that.
func TestGiveBackHeapAfter(t *testing.T) {
	const usual, large = 80, 64 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(usual))
	worked := GiveBackHeapAfter(200 * time.Millisecond)
	if p := percent(); p != usual {
		t.Errorf("at first %d percent", p)
	}
	lookAtProgram()
	started := mappedFile(t)
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
	for end := time.Now().Add(10 * time.Second); mappedFile(t) > started*9/10; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("at the first rest %d kB of files are mapped, %d before", mappedFile(t), started)
		}
	}
	lookAtProgram()
	worked()
	if p := percent(); p != usual {
		t.Errorf("at work again %d percent", p)
	}
	for end := time.Now().Add(10 * time.Second); percent() != idlePercent; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to rest again")
		}
	}
	time.Sleep(100 * time.Millisecond) // for what else it would do
	if after := mappedFile(t); after < started*9/10 {
		t.Errorf("at the second rest %d kB of files are mapped, %d at the start", after, started)
	}
}

// lookAtProgram reads a byte of every page of the program.
func lookAtProgram() {
	sum := byte(0)
	for _, p := range programParts() {
		for at := uintptr(0); at < p.length; at += uintptr(os.Getpagesize()) {
			start := p.start + at
			sum += **(**byte)(unsafe.Pointer(&start))
		}
	}
	runtime.KeepAlive(sum)
}

func percent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
