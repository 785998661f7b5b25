package session

import (
	"bytes"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

func TestStreamLimits(t *testing.T) {
	budget := &atomic.Int64{}
	budget.Store(maxOutput)
	a, b := &stream{budget: budget}, &stream{budget: budget}
	chunk := bytes.Repeat([]byte{'x'}, 1<<20)
	for range 20 {
		for _, s := range []*stream{a, b} {
			if n, err := s.Write(chunk); n != len(chunk) || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
		}
	}
	if len(a.data) > maxStream || len(b.data) > maxStream || len(a.data)+len(b.data) != maxOutput {
		t.Errorf("kept %d and %d bytes", len(a.data), len(b.data))
	}
	budget.Store(maxOutput)
	alone := &stream{budget: budget}
	for range 20 {
		_, _ = alone.Write(chunk)
	}
	if len(alone.data) != maxStream {
		t.Errorf("kept %d bytes of one stream", len(alone.data))
	}
}

// A grandchild that keeps the pipe does not keep the answer for ever.
func TestDrainEnds(t *testing.T) {
	budget := &atomic.Int64{}
	budget.Store(maxOutput)
	path := filepath.Join(t.TempDir(), "fifo")
	s, err := newStream(path, budget)
	if err != nil {
		t.Fatal(err)
	}
	defer s.remove()
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s.taken()
	if _, err := w.WriteString("said"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for heard := 0; heard < len("said"); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		heard = len(s.data)
		s.mu.Unlock()
		if time.Since(begun) > time.Minute {
			t.Fatal("nobody reads")
		}
	}
	begun = time.Now()
	if got := s.drain(begun.Add(50 * time.Millisecond)); string(got) != "said" {
		t.Errorf("got %q", got)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("took %s", took)
	}
}
