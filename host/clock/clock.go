// Package clock waits for time to pass.
package clock

import (
	"context"
	"time"
)

// Sleep waits for d.
//
// # Errors
//
// The cause of the context's end, if that comes first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
