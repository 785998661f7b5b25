package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/measure"
)

// settle is how long a server gets for what it does after its last answer.
const settle = 100 * time.Millisecond

// up are the calls until a pod runs; all others end it.
const up = 3

// cycles runs one pod of each subject after another, by turns.
func (b *bench) cycles(ctx context.Context) error {
	for round := -2; round < b.rounds; round++ {
		for _, s := range b.subjects {
			times := measure.Times{}
			cpu, err := s.used(func() error {
				return errors.Join(measure.Cycle(ctx, s, s.Workload, times), measure.Wait(ctx, settle))
			})
			if err != nil {
				return err
			}
			if round < 0 {
				continue // what is done once
			}
			var started, ended time.Duration
			for i, call := range measure.Calls {
				if i < up {
					started += times.Quantile(call, 0.5)
				} else {
					ended += times.Quantile(call, 0.5)
				}
			}
			b.note("pod up", "ms", s, measure.Milliseconds(started))
			b.note("pod down", "ms", s, measure.Milliseconds(ended))
			b.note("processor time of a pod's life", "ms", s, measure.Milliseconds(cpu))
		}
	}
	return nil
}

// wides has pods come and go, many at once, on each subject in its turn.
func (b *bench) wides(ctx context.Context) error {
	for range 3 {
		for _, s := range b.subjects {
			cycles := make([]int, b.wide)
			started := time.Now()
			cpu, err := s.used(func() error {
				errs := make([]error, b.wide)
				var all sync.WaitGroup
				for i := range errs {
					all.Go(func() {
						for errs[i] == nil && time.Since(started) < b.length {
							errs[i] = measure.Cycle(ctx, s, s.Workload, measure.Times{})
							cycles[i]++
						}
					})
				}
				all.Wait()
				return errors.Join(errs...)
			})
			if err != nil {
				return err
			}
			took, sum := time.Since(started), 0
			for _, n := range cycles {
				sum += n
			}
			b.note("pods' lives at once", "per second", s, float64(sum)/took.Seconds())
			b.note("processor time of a pod's life among many", "ms", s, measure.Milliseconds(cpu)/float64(sum))
		}
	}
	return nil
}

// crowds starts many pods at once, looks at them while they idle, and ends them, each subject in
// its turn.
func (b *bench) crowds(ctx context.Context) error {
	for _, s := range b.subjects {
		before, err := s.account.Memory()
		if err != nil {
			return err
		}
		took, stop, err := measure.StartTogether(ctx, s, s.Workload, b.crowd, measure.Times{})
		if err == nil {
			err = b.idle(ctx, s, took, before)
		}
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) idle(ctx context.Context, s *subject, took time.Duration, before int64) error {
	b.note("all pods of a crowd run", "ms", s, measure.Milliseconds(took))
	if err := measure.Wait(ctx, 5*time.Second); err != nil {
		return err
	}
	after, err := s.account.Memory()
	if err != nil {
		return err
	}
	b.note("memory of an idle pod", "MiB", s, float64(after-before)/float64(b.crowd)/(1<<20))
	const watched = 10 * time.Second
	cpu, err := s.used(func() error { return measure.Wait(ctx, watched) })
	if err != nil {
		return err
	}
	b.note("processor while idle", "%", s, 100*cpu.Seconds()/watched.Seconds())
	for range b.rounds {
		started := time.Now()
		if _, err := s.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{}); err != nil {
			return err
		}
		if _, err := s.ListContainers(ctx, &runtime.ListContainersRequest{}); err != nil {
			return err
		}
		b.note("lists of pods and containers", "ms", s, measure.Milliseconds(time.Since(started)))
		started = time.Now()
		if _, err := s.ListPodSandboxStats(ctx, &runtime.ListPodSandboxStatsRequest{}); err != nil {
			return err
		}
		b.note("statistics of all pods", "ms", s, measure.Milliseconds(time.Since(started)))
	}
	return nil
}

// used is the processor time of a server and its pods while something is done.
func (p *peer) used(do func() error) (time.Duration, error) {
	before, err := p.account.CPU()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := p.account.CPU()
	return after - before, err
}

func (b *bench) note(what, unit string, s *subject, value float64) {
	b.figures.note(what, unit, s, value, load())
}

// load is the machine's load of the last minute, 0 where it is unknown.
func load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	value, _ := strconv.ParseFloat(first, 64)
	return value
}
