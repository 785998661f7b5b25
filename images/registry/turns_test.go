package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// holder takes a place, and gives it back when its turn is over; then it waits for the next.
type holder struct {
	turn
	ended atomic.Int32
}

func (h *holder) run(ctx context.Context, q *turns, began chan<- *holder) {
	for ctx.Err() == nil {
		over := make(chan struct{})
		if q.take(ctx, &h.turn, func() { h.ended.Add(1); close(over) }) != nil {
			return
		}
		if began != nil {
			began <- h
		}
		select {
		case <-over:
		case <-ctx.Done():
		}
		q.leave(&h.turn)
	}
}

func holders(n int, registry string) (out []*holder) {
	pull := new(Repository)
	for range n {
		out = append(out, &holder{turn: turn{registry: registry, pull: pull}})
	}
	return out
}

// Who is slow and alone is left alone, and with others gives way to them: they all get on.
func TestTurns(t *testing.T) {
	for name, who := range map[string][]*holder{
		"a registry that takes all":  append(holders(8, "slow"), holders(1, "other")...),
		"a pull that takes all":      append(holders(8, "r"), holders(1, "r")...),
		"as many registries as that": append(append(holders(4, "a"), holders(4, "b")...), append(holders(1, "c"), holders(1, "d")...)...),
	} {
		t.Run(name, func(t *testing.T) {
			q := newTurns(8)
			q.turn = 20 * time.Millisecond
			defer q.stop()
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			began := make(chan *holder, 10000)
			for _, h := range who[:8] {
				all.Go(func() { h.run(ctx, q, began) })
			}
			for range 8 {
				<-began
			}
			time.Sleep(10 * q.turn)
			for _, h := range who[:8] {
				if h.ended.Load() != 0 {
					t.Error("a turn was ended, and nobody waited")
				}
			}
			for _, h := range who[8:] {
				all.Go(func() { h.run(ctx, q, began) })
			}
			left := make(map[*holder]int) // those who came first do so again and again, the others may stay
			for i, h := range who {
				left[h] = 1
				if i < 8 {
					left[h] = 3
				}
			}
			for len(left) > 0 {
				h := <-began
				if left[h]--; left[h] <= 0 {
					delete(left, h)
				}
			}
		})
	}
}

func TestSharesOfRegistriesAndPulls(t *testing.T) {
	q := newTurns(4)
	defer q.stop()
	a, b := holders(6, "a"), holders(1, "b")
	other := holders(1, "a") // another pull
	for _, h := range append(append(a, other...), b...) {
		go q.take(t.Context(), &h.turn, func() {})
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			q.mu.Lock()
			in := len(q.held) + len(q.waiting)
			mine := h.starts != nil
			q.mu.Unlock()
			if mine && in > 0 {
				break
			}
		}
	}
	for i, want := range []*holder{b[0], other[0], a[4]} {
		q.leave(&a[i].turn)
		q.mu.Lock()
		if got := q.held[len(q.held)-1]; got != &want.turn {
			t.Errorf("place %d: registry %q, want %q", i, got.registry, want.registry)
		}
		q.mu.Unlock()
	}
}

func TestAWaitThatIsGivenUp(t *testing.T) {
	q := newTurns(1)
	defer q.stop()
	first, second := holders(1, "a")[0], holders(1, "b")[0]
	if err := q.take(t.Context(), &first.turn, func() {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.take(ctx, &second.turn, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	q.leave(&first.turn)
	if len(q.held)+len(q.waiting) != 0 {
		t.Errorf("%d hold, %d wait", len(q.held), len(q.waiting))
	}
}

// slowly serves a blob a few bytes at a time until it is hurried.
func slowly(data []byte, ranges bool, hurry <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var from, to int
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); ranges && n == 2 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(data)))
			w.Header().Set("Content-Length", fmt.Sprint(to+1-from))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			from, to = 0, len(data)-1
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		}
		for rest := data[from : to+1]; len(rest) > 0; {
			n := min(3, len(rest))
			select {
			case <-hurry:
				n = len(rest)
			case <-r.Context().Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
			w.Write(rest[:n])
			rest = rest[n:]
			http.NewResponseController(w).Flush()
		}
	}
}

// Slow blobs stop nobody, whether their server knows ranges or not and whether they come whole or
// in parts, and they come whole in the end.
func TestSlowBlobsStopNobody(t *testing.T) {
	data, desc := blobOf(64 << 10)
	for _, tt := range []struct {
		name   string
		ranges bool
		o      Options
	}{
		{"with ranges", true, Options{MaxFetches: 2}},
		{"without ranges", false, Options{MaxFetches: 2}},
		{"in parts", true, Options{MaxFetches: 2, RangeThreshold: 1 << 10, RangeSize: 8 << 10, RangeMemory: 16 << 10}},
		{"in parts, with places for all", true, Options{MaxFetches: 9, RangeThreshold: 1 << 10, RangeSize: 8 << 10, RangeMemory: 16 << 10}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hurry := make(chan struct{})
			slow, _ := serve(t, slowly(data, tt.ranges, hurry))
			quick, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { ranged(w, r, data) })
			client := New(fast(tt.o))
			defer client.Close()
			client.turns.turn = 50 * time.Millisecond
			read := func(host string, began func()) error {
				r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{})
				if err != nil {
					return err
				}
				b, err := r.Fetch(t.Context(), ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size}, 0)
				if err != nil {
					return err
				}
				defer b.Close()
				first := make([]byte, 1)
				if _, err := io.ReadFull(b, first); err != nil {
					return err
				}
				began()
				rest, err := io.ReadAll(b)
				if err == nil && !bytes.Equal(append(first, rest...), data) {
					err = fmt.Errorf("%d bytes, and not those", 1+len(rest))
				}
				return err
			}
			var all, began sync.WaitGroup
			for range 2 {
				began.Add(1)
				all.Go(func() {
					if err := read(slow, began.Done); err != nil {
						t.Errorf("slow blob: %v", err)
					}
				})
			}
			began.Wait()
			for range 3 {
				if err := read(quick, func() {}); err != nil {
					t.Errorf("quick blob: %v", err)
				}
			}
			close(hurry)
			all.Wait()
			if client.parts.taken != 0 || len(client.parts.tokens) != 0 || len(client.turns.held)+len(client.turns.waiting) != 0 {
				t.Errorf("left: %d buffers, %d places", client.parts.taken, len(client.turns.held))
			}
		})
	}
}
