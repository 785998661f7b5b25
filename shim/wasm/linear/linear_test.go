package linear

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestMemoryGrowsToItsCeiling(t *testing.T) {
	p := New(Options{Ceiling: 8 * wasmPage})
	m := p.Allocate(0, math.MaxUint32+1)
	first := m.Reallocate(2 * wasmPage)
	if len(first) != 2*wasmPage {
		t.Fatalf("%d bytes", len(first))
	}
	first[2*wasmPage-1] = 7
	grown := m.Reallocate(8 * wasmPage)
	if len(grown) != 8*wasmPage || &grown[0] != &first[0] || grown[2*wasmPage-1] != 7 {
		t.Error("memory moved or is short")
	}
	grown[8*wasmPage-1] = 1
	if p.Full() {
		t.Error("full before a refusal")
	}
	if m.Reallocate(9*wasmPage) != nil {
		t.Error("it grew beyond its ceiling")
	}
	if !p.Full() {
		t.Error("not full after a refusal")
	}
	p.refused.Store(time.Now().Add(-2 * fullFor).UnixNano())
	if p.Full() {
		t.Error("full long after a refusal")
	}
	p.refused.Store(time.Now().Add(time.Hour).UnixNano())
	if p.Full() {
		t.Error("full since the clock was set back")
	}
	p.SetCeiling(9 * wasmPage)
	if m.Reallocate(9*wasmPage) == nil {
		t.Error("it does not grow to the new ceiling")
	}
	p.SetCeiling(0)
	if m.Reallocate(20*wasmPage) == nil {
		t.Error("it does not grow without a ceiling")
	}
	if _, size := p.Reservation(); m.Reallocate(size+wasmPage) != nil {
		t.Error("it grew beyond its reservation")
	}
	if p.Used() != 20*wasmPage {
		t.Errorf("%d bytes are counted", p.Used())
	}
}

// started runs what instantiating a module does, and returns the error that it panics with.
func started(p *Pool, size uint64) (m interface {
	Reallocate(uint64) []byte
	Free()
}, b []byte, err *StartError) {
	defer func() { err, _ = recover().(*StartError) }()
	m = p.Allocate(0, 64*wasmPage)
	b = m.Reallocate(size)
	return m, b, nil
}

func TestMemoryThatDoesNotFitIsAnError(t *testing.T) {
	for _, o := range []Options{{Ceiling: wasmPage}, {Each: wasmPage}, {Ceiling: wasmPage, Seats: 3}} {
		p := New(o)
		for range 5 { // a seat is not lost
			if _, _, err := started(p, 2*wasmPage); err == nil || err.Image {
				t.Errorf("%+v: error %v", o, err)
			}
		}
		if p.Used() != 0 {
			t.Errorf("%d bytes are counted", p.Used())
		}
	}
}

// TestMemoriesShareACeiling counts all of them, and gives back what has ended.
func TestMemoriesShareACeiling(t *testing.T) {
	p := New(Options{Seats: 3, Ceiling: 6 * wasmPage, Each: 5 * wasmPage})
	one, _, err := started(p, 2*wasmPage)
	two, _, _ := started(p, 2*wasmPage)
	if err != nil || p.Seats() != 3 {
		t.Fatalf("%v, %d seats", err, p.Seats())
	}
	if one.Reallocate(4*wasmPage) == nil || one.Reallocate(5*wasmPage) != nil || two.Reallocate(3*wasmPage) != nil {
		t.Error("the ceiling is not that of both")
	}
	two.Free()
	two.Free() // wazero frees once, and a second time changes nothing
	if one.Reallocate(5*wasmPage) == nil || one.Reallocate(6*wasmPage) != nil {
		t.Error("the bound of one does not hold")
	}
	if p.Used() != 5*wasmPage {
		t.Errorf("%d bytes are counted", p.Used())
	}
	if _, _, err := started(p, 2*wasmPage); err == nil {
		t.Error("one started beyond the ceiling")
	}
	one.Free()
	if p.Used() != 0 {
		t.Errorf("%d bytes are counted at the end", p.Used())
	}
}

func TestSeatsAreBounded(t *testing.T) {
	p := New(Options{Seats: 2})
	first, _, _ := started(p, wasmPage)
	if _, _, err := started(p, wasmPage); err != nil {
		t.Fatal(err)
	}
	if _, _, err := started(p, wasmPage); !errors.Is(err, ErrNoSeat) {
		t.Errorf("a third one: %v", err)
	}
	first.Free()
	if _, _, err := started(p, wasmPage); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// TestMemoryIsFresh has nothing of an instance before it, and the image again.
func TestMemoryIsFresh(t *testing.T) {
	content := bytes.Repeat([]byte{7}, wasmPage)
	name := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := New(Options{Seats: 2})
	p.SetImage(Image{File: f, At: wasmPage, Size: wasmPage})
	want := append(append(make([]byte, wasmPage), content...), make([]byte, wasmPage)...)
	for range 5 {
		m, b, err := started(p, 3*wasmPage)
		if err != nil || !bytes.Equal(b, want) {
			t.Fatalf("memory is not as at the start: %v", err)
		}
		grown := m.Reallocate(8 * wasmPage)
		if len(grown) != 8*wasmPage || !bytes.Equal(grown[3*wasmPage:], make([]byte, 5*wasmPage)) {
			t.Fatal("what was grown is not zero")
		}
		for i := range grown {
			grown[i] = 9
		}
		m.Free()
	}
	if after, err := os.ReadFile(name); err != nil || !bytes.Equal(after, content) {
		t.Errorf("the image was written: %v", err)
	}
	p.SetImage(Image{File: f, At: 3 * wasmPage, Size: wasmPage})
	p.free = nil
	if _, _, err := started(p, 3*wasmPage); err == nil || !err.Image {
		t.Errorf("an image beyond the memory: %v", err)
	}
}

// TestPoolAtOnce has many instances come and go.
func TestPoolAtOnce(t *testing.T) {
	p := New(Options{Seats: 8, Ceiling: 1 << 30})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				m, b, err := started(p, wasmPage)
				if err != nil || b[5] != 0 {
					t.Errorf("%v", err)
					return
				}
				b[5] = 1
				m.Reallocate(3 * wasmPage)
				m.Free()
			}
		})
	}
	all.Wait()
	if p.Used() != 0 {
		t.Errorf("%d bytes are counted at the end", p.Used())
	}
}

// In 32 bits of address space there is room for every seat, unless the module starts with more.
func TestNarrowAddresses(t *testing.T) {
	for _, c := range []struct {
		least, most uint64
		o           Options
		want        uint64
	}{
		{2 * wasmPage, maxLinear, Options{}, max32},
		{2 * wasmPage, 5 * wasmPage, Options{}, 5 * wasmPage},
		{2 * wasmPage, maxLinear, Options{Seats: 64}, 16 << 20},
		{2 * wasmPage, maxLinear, Options{Seats: 100}, 163 * wasmPage},
		{32 << 20, maxLinear, Options{Seats: 64}, 32 << 20},
		{2 * wasmPage, maxLinear, Options{Seats: 8, Each: 40*wasmPage - 1}, 40 * wasmPage},
		{2 * wasmPage, maxLinear, Options{Each: maxLinear}, max32},
		{maxLinear, maxLinear, Options{}, max32},
		{0, 0, Options{Seats: 1 << 20}, wasmPage},
	} {
		if got := narrow(c.least, c.most, c.o); got != c.want {
			t.Errorf("from %d to %d bytes, %+v: parts of %d, want %d", c.least, c.most, c.o, got, c.want)
		}
	}
}

// A pool with many seats has them all, on every architecture.
func TestAllSeatsFit(t *testing.T) {
	p := New(Options{Seats: 64})
	for i := range 64 {
		if m, ok := p.Allocate(2*wasmPage, maxLinear).(*Memory); !ok || len(m.Reallocate(2*wasmPage)) != 2*wasmPage {
			t.Fatalf("there is no memory %d", i+1)
		}
	}
}
