package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// power takes its time to shut down.
type power struct {
	takes     time.Duration
	fails     error
	cancelled int
}

func (p *power) Shutdown(context.Context) error {
	time.Sleep(p.takes)
	return p.fails
}

func (p *power) CancelShutdown(context.Context) error {
	p.cancelled++
	return nil
}

// A shutdown may take longer than requests are given.
func TestShutdown(t *testing.T) {
	p := &power{takes: 300 * time.Millisecond}
	c, _ := listen(t, newFake(), Options{Shutdown: p, request: 100 * time.Millisecond})
	began := time.Now()
	if err := c.Shutdown(t.Context(), ShutdownRequest{}); err != nil || time.Since(began) < p.takes {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if err := c.Shutdown(t.Context(), ShutdownRequest{Cancel: true}); err != nil || p.cancelled != 1 {
		t.Errorf("%v, cancelled %d times", err, p.cancelled)
	}
	p.fails = fmt.Errorf("it is turned off: %w", errdefs.ErrFailedPrecondition)
	if err := c.Shutdown(t.Context(), ShutdownRequest{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("error %v", err)
	}
}
