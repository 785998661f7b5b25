package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/tests/node"
)

// Crowd starts many pods at once, each until its container runs, and ends them at once: each
// workload in its turn, round after round. The first round warms caches and is not counted.
func Crowd(ctx context.Context, out io.Writer, n *node.Node, workloads []Workload, pods, rounds int) error {
	times := make([]Times, len(workloads))
	for i := range times {
		times[i] = Times{}
	}
	for round := -1; round < rounds; round++ {
		for i, w := range workloads {
			if err := crowd(ctx, n, w, pods, times[i], round >= 0); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(out, "%d pods at once, %d times by turns, in milliseconds: the median and the 95th percentile\n%-18s", pods, rounds, "")
	for _, w := range workloads {
		fmt.Fprintf(out, " %17s", w.Handler)
	}
	fmt.Fprintln(out)
	for _, call := range append(Calls, allUp) {
		fmt.Fprintf(out, "%-18s", call)
		for i := range workloads {
			fmt.Fprintf(out, " %8.1f %8.1f", Milliseconds(times[i].Quantile(call, 0.5)), Milliseconds(times[i].Quantile(call, 0.95)))
		}
		fmt.Fprintln(out)
	}
	return nil
}

// allUp is the time until all pods of a crowd run.
const allUp = "all run after"

// crowd is one round of one workload.
func crowd(ctx context.Context, n *node.Node, w Workload, pods int, times Times, counted bool) error {
	own := Times{}
	took, stop, err := StartTogether(ctx, n, w, pods, own)
	if err = errors.Join(err, stop()); err != nil || !counted {
		return err
	}
	times[allUp] = append(times[allUp], took)
	for call, each := range own {
		times[call] = append(times[call], each...)
	}
	return nil
}

// StartTogether starts many pods at once, each until its container runs, and says how long that
// took. stop ends all that run at once, and then adds the times of all calls to times.
func StartTogether(ctx context.Context, s Server, w Workload, pods int, times Times) (took time.Duration, stop func() error, err error) {
	lives := make([]*life, pods)
	for i := range lives {
		lives[i] = &life{ctx: ctx, node: s, times: Times{}, counted: true}
	}
	took, err = timed(func() error { return together(lives, func(_ int, l *life) error { return l.up(w) }) })
	return took, func() error {
		ended := together(lives, func(_ int, l *life) error {
			if l.container == "" {
				return nil
			}
			return l.down()
		})
		for _, l := range lives {
			for call, each := range l.times {
				times[call] = append(times[call], each...)
			}
		}
		return ended
	}, err
}

// together does something with all lives at once.
func together(lives []*life, do func(i int, l *life) error) error {
	errs := make([]error, len(lives))
	var all sync.WaitGroup
	for i, l := range lives {
		all.Go(func() { errs[i] = do(i, l) })
	}
	all.Wait()
	return errors.Join(errs...)
}
