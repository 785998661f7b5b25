package wasi

import (
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// soon runs f a little later, beside what waits for it.
func soon(t *testing.T, f func()) {
	t.Helper()
	var done sync.WaitGroup
	done.Go(func() { time.Sleep(20 * time.Millisecond); f() })
	t.Cleanup(done.Wait)
}

// TestEvents are polled for alone, and with clocks and files.
func TestEvents(t *testing.T) {
	s, _, _ := newSystem(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	files, _, err := s.Stdio(int(r.Fd()), -1, -1)
	if err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string][]Subscription{
		"alone": nil, "twice": {{Event: new(Event)}}, "clock": {{Due: Forever}}, "file": {{File: files[0]}}, "both": {{Due: Forever}, {File: files[0]}},
	} {
		var e Event
		subs := append([]Subscription{{Event: &e}}, more...)
		for range 2 {
			soon(t, e.Set)
			if n, err := s.Poll(subs); n != 1 || err != nil || !subs[0].Ready {
				t.Errorf("%s: %d are ready, %v: %+v", name, n, err, subs)
			}
			if n, err := s.Poll(subs); n != 1 || err != nil { // it stays so
				t.Errorf("%s: %d are ready, %v", name, n, err)
			}
			e.Clear()
			if e.IsSet() {
				t.Errorf("%s: it is not cleared", name)
			}
			due := append([]Subscription{{Due: s.Monotonic() + int64(5*time.Millisecond)}}, subs...)
			if n, err := s.Poll(due); n != 1 || err != nil || !due[0].Ready {
				t.Errorf("%s: a clock beside it: %d are ready, %v", name, n, err)
			}
		}
		if len(e.waiting) != 0 {
			t.Errorf("%s: %d wait still", name, len(e.waiting))
		}
	}
	// A file beside an event wakes, too.
	var e Event
	soon(t, func() { w.WriteString("x") })
	subs := []Subscription{{Event: &e}, {File: files[0]}}
	if n, err := s.Poll(subs); n != 1 || err != nil || !subs[1].Ready {
		t.Errorf("%d are ready, %v: %+v", n, err, subs)
	}
}

// TestEventsAreNoInterrupt: an event that is not waited for any more wakes nothing, and an
// Interrupt is not lost beside one.
func TestEventsAreNoInterrupt(t *testing.T) {
	for _, parks := range []bool{false, true} {
		s, _, _ := newSystem(t)
		s.Parks = parks
		var e Event
		soon(t, func() { s.waiter.ring() })
		due := s.Monotonic() + int64(50*time.Millisecond)
		if n, err := s.Poll([]Subscription{{Due: due}}); n != 1 || err != nil || s.Monotonic() < due {
			t.Errorf("a ring ended the wait for a clock: %d, %v", n, err)
		}
		e.Set()
		s.Interrupt()
		subs := []Subscription{{Event: &e}}
		if n, err := s.Poll(subs); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		clock := []Subscription{{Due: Forever}}
		if n, err := s.Poll(clock); n != 1 || err != nil || !clock[0].Ready {
			t.Errorf("after an Interrupt: %d, %v", n, err)
		}
	}
}

// TestCancel ends waits of all kinds, now and later.
func TestCancel(t *testing.T) {
	waits := map[string]func(s *System, f *File) error{
		"event": func(s *System, _ *File) error { _, err := s.Poll([]Subscription{{Event: new(Event)}}); return err },
		"clock": func(s *System, _ *File) error { _, err := s.Poll([]Subscription{{Due: Forever}}); return err },
		"file":  func(s *System, f *File) error { _, err := s.Poll([]Subscription{{File: f}}); return err },
		"read":  func(_ *System, f *File) error { _, err := f.Read(one(make([]byte, 1))); return err },
	}
	for name, wait := range waits {
		s, _, _ := newSystem(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		files, _, err := s.Stdio(int(r.Fd()), -1, -1)
		if err != nil {
			t.Fatal(err)
		}
		soon(t, s.Cancel)
		for range 2 {
			if err := wait(s, files[0]); err != unix.ECANCELED {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.Close()
		w.Close()
	}
}

// TestEventsOfMany systems.
func TestEventsOfMany(t *testing.T) {
	var e Event
	var all sync.WaitGroup
	for range 8 {
		s, _, _ := newSystem(t)
		all.Go(func() {
			if n, err := s.Poll([]Subscription{{Event: &e}}); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	soon(t, e.Set)
	all.Wait()
}

// TestBellBeforeItIsMade is heard by the first wait that needs a descriptor, whenever it rang.
func TestBellBeforeItIsMade(t *testing.T) {
	s := New()
	s.Cancel()
	if _, err := s.waiter.await(-1, 0, nil); err != unix.ECANCELED {
		t.Errorf("a wait after Cancel: %v", err)
	}
	s.Close()
	for n := range 500 {
		s := New()
		var ringing sync.WaitGroup
		ringing.Go(s.Interrupt)
		if n%2 == 0 {
			ringing.Wait()
		}
		wait := unix.Timespec{Sec: 10}
		if why, err := s.waiter.await(-1, 0, &wait); why != wakeInterrupt || err != nil {
			t.Fatalf("round %d: woken by %d, %v", n, why, err)
		}
		ringing.Wait()
		s.Close()
		s.waiter.ring() // by an event that comes too late: there is nothing to ring
	}
}
