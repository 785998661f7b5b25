// Package watchdog answers systemd's watchdog (sd_watchdog_enabled(3)) for as long as the server
// answers.
package watchdog

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// parts is how often systemd is answered within its time. One answer may be missed.
const parts = 3

// Options configure Run.
type Options struct {
	// Within is the time in which systemd wants an answer.
	Within time.Duration
	// Live is an error if the server does not answer.
	Live func(context.Context) error
	// Notify tells systemd a state.
	Notify func(state string) error
	Logger *slog.Logger
}

// Run answers the watchdog until the context ends. While the server does not answer, systemd gets
// no answer either, and ends the server when its time is over.
func Run(ctx context.Context, o Options) {
	every := o.Within / parts
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := false
	for {
		err := o.ask(ctx, every)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			o.Logger.Error("failed to answer the watchdog of systemd, which ends the server unless it answers again", "within", o.Within, "error", err)
		case failing:
			o.Logger.Info("watchdog of systemd answered again")
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask asks whether the server lives, and answers systemd if it does.
func (o Options) ask(ctx context.Context, patience time.Duration) error {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- o.Live(asking) }()
	select {
	case err := <-ended:
		if err != nil {
			return err
		}
	case <-asking.Done(): // also if it does not heed its context
		return fmt.Errorf("the server does not answer within %s: %w", patience, asking.Err())
	}
	return o.Notify("WATCHDOG=1")
}
