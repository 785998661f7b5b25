package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
)

const (
	pollEvery  = 100 * time.Millisecond
	serverAway = 30 * time.Second // a server may be restarted while pods run
	sameSignal = 300 * time.Millisecond
)

// containers are those that have been created, and the wish to stop them.
type containers struct {
	created []*container
	asked   time.Time // when that wish came first
	stops   sync.WaitGroup
}

// container is one that has been created.
type container struct {
	*planned
	id    string
	log   *follower
	ended *runtime.ContainerStatus // nil while it runs
}

// start creates and starts a container, and follows its log.
func (r *runner) start(ctx context.Context, p *planned) error {
	began := time.Now()
	resp, err := r.client.CreateContainer(ctx, &runtime.CreateContainerRequest{
		PodSandboxId: r.sandboxID, Config: p.config, SandboxConfig: r.plan.sandbox,
	})
	if err != nil {
		return fmt.Errorf("create container %q: %w", p.name, dial.Native(err))
	}
	prefix := ""
	if len(r.plan.init)+len(r.plan.main) > 1 {
		prefix = p.name
	}
	c := &container{planned: p, id: resp.GetContainerId()}
	c.log = follow(r.logOf(ctx, c), prefix, r.Stdout, r.Stderr, r.hangup)
	r.created = append(r.created, c)
	if _, err := r.client.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: c.id}); err != nil {
		return fmt.Errorf("start container %q: %w", p.name, dial.Native(err))
	}
	r.say("container %s started in %s", p.name, short(time.Since(began)))
	return nil
}

// logOf is a container's log.
func (r *runner) logOf(ctx context.Context, c *container) *rotated {
	ctx = context.WithoutCancel(ctx)
	return &rotated{
		path: r.plan.logFile(c.planned), max: maxLog,
		reopen: func() error {
			ctx, cancel := context.WithTimeout(ctx, cleanupTime)
			defer cancel()
			_, err := r.client.ReopenContainerLog(ctx, &runtime.ReopenContainerLogRequest{ContainerId: c.id})
			return dial.Native(err)
		},
		problem: func(text string) { r.say("container %s: %s", c.name, text) },
	}
}

// wait waits for the end of one container.
func (r *runner) wait(ctx context.Context, p *planned) (int, error) {
	return r.waitAll(ctx, []*planned{p})
}

// waitAll waits until the containers have ended and answers the first exit code that is not 0. When
// ctx ends or a signal comes, it stops them with grace, and at a further signal without.
func (r *runner) waitAll(ctx context.Context, list []*planned) (int, error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(again)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	waiting := slices.DeleteFunc(slices.Clone(r.created), func(c *container) bool { return !slices.Contains(list, c.planned) })
	stop := ctx.Done()
	live := context.WithoutCancel(ctx)
	away := time.Time{} // since when the server does not answer
	for {
		left, err := r.poll(live, waiting)
		switch {
		case err == nil:
			away = time.Time{}
		case !errdefs.IsUnavailable(err):
			return 1, err
		case away.IsZero():
			away = time.Now()
			r.say("the server does not answer; waiting")
		case time.Since(away) > serverAway:
			return 1, err
		}
		if left == 0 {
			r.stops.Wait()
			return firstCode(waiting), nil
		}
		select {
		case <-tick.C:
		case <-stop:
			stop = nil
			r.interrupt(live, waiting)
		case <-again:
			r.interrupt(live, waiting)
		}
	}
}

func (r *runner) interrupted() bool { return !r.asked.IsZero() }

// interrupt stops containers: with grace first, at once when asked again. One signal may both end a
// context and arrive by itself, so what comes right after the first is the same one.
func (r *runner) interrupt(ctx context.Context, list []*container) {
	switch {
	case !r.interrupted():
		r.asked = time.Now()
		r.say("stopping, for up to %s", r.plan.grace)
	case time.Since(r.asked) < sameSignal:
		return
	default:
		r.plan.grace = 0
		r.say("stopping at once")
	}
	grace := r.plan.grace
	for _, c := range list {
		if c.ended == nil {
			r.stops.Go(func() { r.stop(ctx, c, grace) })
		}
	}
}

// poll looks at the containers once and answers how many have not ended.
func (r *runner) poll(ctx context.Context, list []*container) (left int, err error) {
	for _, c := range list {
		if c.ended != nil {
			continue
		}
		left++
		resp, err := r.client.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: c.id})
		if err != nil {
			return left, fmt.Errorf("ask for status of container %q: %w", c.name, dial.Native(err))
		}
		if resp.GetStatus().GetState() == runtime.ContainerState_CONTAINER_EXITED {
			c.ended = resp.GetStatus()
			left--
			r.sayEnd(c)
		}
	}
	return left, nil
}

func (r *runner) sayEnd(c *container) {
	r.finishLog(c)
	s := c.ended
	ran := time.Duration(s.GetFinishedAt() - s.GetStartedAt())
	text := fmt.Sprintf("container %s ended with code %d", c.name, s.GetExitCode())
	if reason := s.GetReason(); reason != "" {
		text += " (" + reason + ")"
	}
	if s.GetStartedAt() > 0 && ran >= 0 {
		text += " after " + short(ran)
	}
	if m := s.GetMessage(); m != "" {
		text += ": " + m
	}
	r.say("%s", text)
}

// stop asks the server to stop a container. One that does not exist counts as stopped.
func (r *runner) stop(ctx context.Context, c *container, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace+cleanupTime)
	defer cancel()
	_, err := r.client.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: c.id, Timeout: int64(grace / time.Second)})
	if err = dial.Native(err); err != nil && !errdefs.IsNotFound(err) {
		r.Logger.Warn("failed to stop container", "container", c.name, "error", err)
	}
}

// stopSidecars stops in reverse order what was started before the others and has no end of its own.
func (r *runner) stopSidecars(ctx context.Context) {
	for _, c := range slices.Backward(r.created) {
		if !c.sidecar || c.ended != nil {
			continue
		}
		r.stop(ctx, c, r.plan.grace)
		if _, err := r.poll(ctx, []*container{c}); err != nil {
			r.Logger.Warn("failed to stop sidecar", "container", c.name, "error", err)
		}
	}
}

// firstCode is the exit code that is not 0 of the container that ended first.
func firstCode(list []*container) int {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b *container) int {
		return cmp.Compare(a.ended.GetFinishedAt(), b.ended.GetFinishedAt())
	})
	for _, c := range sorted {
		if code := c.ended.GetExitCode(); code != 0 {
			return int(code)
		}
	}
	return 0
}

// drainLogs writes what the logs still hold and ends following them.
func (r *runner) drainLogs() {
	for _, c := range r.created {
		r.finishLog(c)
	}
}

// finishLog writes what a log still holds. That nobody reads it any more has ended the run.
func (r *runner) finishLog(c *container) {
	if err := c.log.finish(); err != nil && !errors.Is(err, syscall.EPIPE) {
		r.Logger.Error("failed to follow log", "container", c.name, "error", err)
	}
}
