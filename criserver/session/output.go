package session

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// stream is one output of a command, kept as far as the limits allow.
type stream struct {
	*fifo
	done   chan struct{}
	budget *atomic.Int64 // shared by both streams

	mu   sync.Mutex
	data []byte
}

func newStream(path string, budget *atomic.Int64) (*stream, error) {
	f, err := newFIFO(path, false)
	if err != nil {
		return nil, err
	}
	s := &stream{fifo: f, done: make(chan struct{}), budget: budget}
	go func() {
		defer close(s.done)
		_, _ = io.Copy(s, s.file) // ends with the last writer, or when drain has waited long enough
	}()
	return s, nil
}

// Write keeps what the limits allow and takes the rest without keeping it.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := min(len(p), maxStream-len(s.data))
	if left := s.budget.Add(-int64(keep)); left < 0 {
		keep = max(0, keep+int(left))
		s.budget.Store(0)
	}
	s.data = append(s.data, p[:keep]...)
	return len(p), nil
}

// drain returns what was written, waiting for the end of it until the deadline.
func (s *stream) drain(deadline time.Time) []byte {
	_ = s.file.SetReadDeadline(deadline)
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}
