package pipe

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestPipeCarriesEverything between a side that waits and one that asks, in both directions, in
// pieces of all sizes.
func TestPipeCarriesEverything(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		want := make([]byte, random.IntN(1<<20))
		for i := range want {
			want[i] = byte(random.Uint32())
		}
		p, most := New(), 1+random.IntN(100000)
		var wait sync.WaitGroup
		wait.Go(func() { // asks
			random := rand.New(rand.NewPCG(seed, 2))
			for rest := want; len(rest) > 0; {
				n, err := p.TryWrite(rest[:min(len(rest), 1+random.IntN(most))])
				if err != nil {
					t.Error(err)
				}
				if rest = rest[n:]; n == 0 {
					waitFor(t, p.Writable.IsSet)
				}
			}
			p.CloseWrite(io.EOF)
		})
		got, err := io.ReadAll(p)
		if wait.Wait(); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("seed %d, to the side that waits: %d of %d bytes, %v", seed, len(got), len(want), err)
		}

		p = New()
		wait.Go(func() { // waits
			random := rand.New(rand.NewPCG(seed, 3))
			for rest := want; len(rest) > 0; {
				n, err := p.Write(rest[:min(len(rest), 1+random.IntN(most))])
				if err != nil {
					t.Error(err)
				}
				rest = rest[n:]
			}
			p.CloseWrite(errBroken)
		})
		got = nil
		chunk := make([]byte, most)
		for {
			n, err := p.TryRead(chunk)
			if got = append(got, chunk[:n]...); err != nil {
				if err != errBroken {
					t.Error(err)
				}
				break
			}
			if n == 0 {
				waitFor(t, p.Readable.IsSet)
			}
		}
		if wait.Wait(); !bytes.Equal(got, want) {
			t.Fatalf("seed %d, to the side that asks: %d of %d bytes", seed, len(got), len(want))
		}
	}
}

// waitFor polls, as a test may.
func waitFor(t *testing.T, ready func() bool) {
	for deadline := time.Now().Add(time.Minute); !ready(); time.Sleep(10 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Error("nothing happens")
			return
		}
	}
}

func TestPipeIsBounded(t *testing.T) {
	p := New()
	if n, err := p.TryWrite(make([]byte, 2*Size)); n != Size || err != nil || len(p.ring) != Size {
		t.Errorf("%d, %v, a ring of %d", n, err, len(p.ring))
	}
	if n, err := p.TryWrite([]byte{1}); n != 0 || err != nil || p.Writable.IsSet() || !p.Readable.IsSet() {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := p.TryRead(make([]byte, 5)); n != 5 || err != nil || !p.Writable.IsSet() {
		t.Errorf("%d, %v", n, err)
	}
	if room, err := p.Room(); room != 5 || err != nil {
		t.Errorf("%d, %v", room, err)
	}
}

// TestPipeEnds on either side, and wakes the other.
func TestPipeEnds(t *testing.T) {
	broken := errors.New("broken")
	p := New()
	p.TryWrite([]byte("rest"))
	p.CloseWrite(broken)
	p.CloseWrite(io.EOF)
	if got, err := io.ReadAll(p); string(got) != "rest" || err != broken || !p.Readable.IsSet() {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := p.TryWrite([]byte("more")); err != io.ErrClosedPipe {
		t.Error(err)
	}

	p = New()
	written := make(chan error)
	go func() {
		_, err := p.Write(make([]byte, 3*Size))
		written <- err
	}()
	waitFor(t, func() bool { n, _ := p.Room(); return n == 0 })
	p.CloseRead(ErrUnread)
	if err := <-written; err != ErrUnread || !p.Writable.IsSet() {
		t.Error(err)
	}
	if _, err := p.Room(); err != ErrUnread {
		t.Error(err)
	}

	p = New()
	read := make(chan error)
	go func() {
		_, err := p.Read(make([]byte, 1))
		read <- err
	}()
	time.Sleep(5 * time.Millisecond)
	p.CloseWrite(broken)
	if err := <-read; err != broken {
		t.Error(err)
	}
}

// FuzzPipe compares a pipe with a buffer.
func FuzzPipe(f *testing.F) {
	f.Add([]byte{10, 200, 30, 150})
	f.Add([]byte{255, 127, 255, 127, 1, 2, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		p, next := New(), byte(0)
		var model []byte
		for _, step := range steps {
			size := int(step&0x7f) * int(step&0x7f) * 5
			b := make([]byte, size)
			if step&0x80 == 0 {
				for i := range b {
					b[i], next = next, next+1
				}
				n, err := p.TryWrite(b)
				if want := min(size, Size-len(model)); n != want || err != nil {
					t.Fatalf("wrote %d of %d, %v; want %d", n, size, err, want)
				}
				model, next = append(model, b[:n]...), next-byte(size-n)
			} else {
				n, err := p.TryRead(b)
				if err != nil || !bytes.Equal(b[:n], model[:n]) || n != min(size, len(model)) {
					t.Fatalf("read %d of %d, %v", n, size, err)
				}
				model = model[n:]
			}
			if p.Readable.IsSet() != (len(model) > 0) || p.Writable.IsSet() != (len(model) < Size) {
				t.Fatalf("with %d bytes: readable %v, writable %v", len(model), p.Readable.IsSet(), p.Writable.IsSet())
			}
		}
	})
}

var errBroken = errors.New("broken")

func TestReadEndsWithCloseRead(t *testing.T) {
	p, done := New(), make(chan error, 1)
	go func() {
		_, err := p.Read(make([]byte, 1))
		done <- err
	}()
	p.CloseRead(ErrUnread)
	select {
	case err := <-done:
		if err != ErrUnread {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
}
