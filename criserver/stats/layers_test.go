package stats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sunaba-project/sunaba/host/space"
)

// A reading serves for a second, and for twenty times as long as it took.
func TestLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, took := 0, time.Millisecond
		var fails error
		l := &Layers{Measure: func(context.Context, string, *space.Known) (space.Use, error) {
			time.Sleep(took)
			read++
			return space.Use{Bytes: int64(read), Inodes: 7}, fails
		}}
		usage := func(want int64) LayerUsage {
			t.Helper()
			u, err := l.Usage(t.Context(), "a")
			if err != nil || u.Bytes != want || u.Inodes != 7 {
				t.Errorf("%+v, %v; want the reading of number %d", u, err, want)
			}
			return u
		}
		first := usage(1)
		time.Sleep(900 * time.Millisecond)
		if again := usage(1); !again.At.Equal(first.At) {
			t.Errorf("the same reading at %v and %v", first.At, again.At)
		}
		time.Sleep(200 * time.Millisecond)
		took = time.Second
		usage(2)
		time.Sleep(19 * time.Second)
		usage(2)
		time.Sleep(2 * time.Second)
		usage(3)

		// Errors are answered and not remembered; those who ask at the same time share one reading.
		time.Sleep(time.Minute)
		fails = errors.New("no")
		if _, err := l.Usage(t.Context(), "a"); !errors.Is(err, fails) || len(l.last) != 0 {
			t.Errorf("%v, %d remembered", err, len(l.last))
		}
		fails = nil
		took = 0 // a wait for a lock does not let this clock go on
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { usage(5) })
		}
		all.Wait()
	})
}

// Layers come and go for years; what is remembered of them stays bounded.
func TestLayersForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Layers{Measure: func(context.Context, string, *space.Known) (space.Use, error) { return space.Use{}, nil }}
		for i := range 10 * firstSweep {
			if _, err := l.Usage(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if len(l.last) > firstSweep {
			t.Errorf("%d readings are remembered", len(l.last))
		}
	})
}
