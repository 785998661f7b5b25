package singleflight

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestDoSharesOneRun(t *testing.T) {
	var g Group[int]
	var runs atomic.Int32
	release := make(chan struct{})
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			v, err := g.Do(t.Context(), "k", func(context.Context) (int, error) {
				runs.Add(1)
				<-release
				return 7, nil
			})
			if v != 7 || err != nil {
				t.Errorf("Do = %d, %v", v, err)
			}
		})
	}
	for {
		g.mu.Lock()
		r := g.runs["k"]
		n := 0
		if r != nil {
			n = r.waiting
		}
		g.mu.Unlock()
		if n == 5 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	g.Wait()
	if n := runs.Load(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
	if len(g.runs) != 0 {
		t.Errorf("%d runs remembered", len(g.runs))
	}
}

func TestDoOutlivesAnImpatientCaller(t *testing.T) {
	var g Group[int]
	started, release := make(chan struct{}), make(chan struct{})
	impatient, cancel := context.WithCancel(t.Context())
	fn := func(ctx context.Context) (int, error) {
		close(started)
		select {
		case <-release:
			return 1, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	first := make(chan error, 1)
	go func() {
		_, err := g.Do(impatient, "k", fn)
		first <- err
	}()
	<-started
	second := make(chan error, 1)
	go func() {
		_, err := g.Do(t.Context(), "k", fn)
		second <- err
	}()
	for {
		g.mu.Lock()
		n := g.runs["k"].waiting
		g.mu.Unlock()
		if n == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("impatient caller got %v", err)
	}
	close(release)
	if err := <-second; err != nil {
		t.Errorf("patient caller got %v", err)
	}
}

func TestDoEndsWorkForNobodyAndFreesTheKey(t *testing.T) {
	var g Group[int]
	ctx, cancel := context.WithCancel(t.Context())
	started, winding := make(chan struct{}), make(chan struct{})
	go func() {
		<-started
		cancel()
	}()
	_, err := g.Do(ctx, "k", func(ctx context.Context) (int, error) {
		close(started)
		<-ctx.Done()
		<-winding
		return 0, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Do: %v", err)
	}
	v, err := g.Do(t.Context(), "k", func(context.Context) (int, error) { return 2, nil })
	if v != 2 || err != nil {
		t.Errorf("Do after a cancelled run = %d, %v", v, err)
	}
	close(winding)
	g.Wait()
}
