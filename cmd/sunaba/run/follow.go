package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/agent/images"
)

const (
	lookEvery  = time.Second
	serverAway = 30 * time.Second // a server may be restarted while pods run
	sameSignal = 300 * time.Millisecond
)

// withHangup ends the context also when the terminal is closed or the reader of the output has
// exited. Without it, either would end this process and leave the pod. A program that was started
// to outlive its terminal (nohup) continues.
func withHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE) // a write fails with EPIPE then, and says so itself
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGHUP {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// ending is the end of a run.
type ending struct {
	*runner
	agent  *agent.Agent
	asked  time.Time        // when the user asked for it
	since  time.Time        // when the deletion of the pod was ordered; zero before
	status corev1.PodStatus // when the pod was over by itself
	why    error            // why the pod cannot run
	told   map[string]int32 // counts of events that were told, by name
}

// follow tells what happens to the pod, and ends it when it is over, cannot run or is to stop.
func (r *runner) follow(ctx context.Context, a *agent.Agent, s *server) (*ending, error) {
	e := &ending{runner: r, agent: a, told: map[string]int32{}}
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(again)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	stop := ctx.Done()
	live := context.WithoutCancel(ctx)
	for waiting := false; ; {
		changed := a.Watch()
		over, err := e.look(live)
		if err != nil || over {
			return e, err
		}
		select {
		case <-changed:
		case <-stop:
			stop = nil
			if err = e.interrupt(live); r.Keep {
				return e, err
			}
		case <-again:
			err = e.interrupt(live)
		case <-e.attached.news():
			err = e.lost(live)
		case <-tick.C:
			away := s.awaySince()
			if !away.IsZero() && !waiting {
				r.say("the server does not answer; waiting")
			}
			if waiting = !away.IsZero(); waiting && time.Since(away) > serverAway {
				err = fmt.Errorf("the server at %q has not answered for %s: %w", r.Socket, serverAway, errdefs.ErrUnavailable)
			}
			if grace := e.grace(); !e.since.IsZero() && time.Since(e.since) > grace+cleanupTime {
				err = fmt.Errorf("the pod was not removed within %s: %w", grace+cleanupTime, errdefs.ErrUnavailable)
			}
		}
		if err != nil {
			return e, err
		}
	}
}

func (e *ending) grace() time.Duration {
	return time.Duration(*e.pod.Spec.TerminationGracePeriodSeconds) * time.Second
}

// look tells what is new, and orders the end of a pod that is over or cannot run. It says whether
// nothing is left of the pod.
func (e *ending) look(ctx context.Context) (over bool, err error) {
	events := e.agent.Events()
	defer e.tell(events)
	pod, found := e.agent.Pod(e.key.Namespace, e.key.Name)
	switch {
	case !found:
		if why := refused(events); why != nil && e.why == nil {
			e.why = why
			return false, e.end(ctx, -1)
		}
		return !e.since.IsZero(), nil
	case !e.since.IsZero(), e.attached.busy():
		return false, nil
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		e.made, e.status = true, pod.Status
		if e.Keep {
			return true, nil
		}
		e.tell(e.agent.Events()) // why it failed may come together with its end
		return false, e.end(ctx, -1)
	}
	e.made = true
	if e.why = blocked(pod, events); e.why != nil {
		return false, e.end(ctx, -1)
	}
	return false, nil
}

// tell tells of warnings, unless the pod is being ended. The failure of a container is told anyway.
func (e *ending) tell(events []*corev1.Event) {
	for _, event := range events {
		seen := e.told[event.Name] == event.Count || strings.HasPrefix(event.Message, "Error: ")
		if event.Type == corev1.EventTypeWarning && !seen && e.since.IsZero() {
			e.say("%s: %s", event.Reason, event.Message)
		}
		e.told[event.Name] = event.Count
	}
}

// end orders the deletion of the pod; grace is in seconds, or the pod's own if it is negative.
func (e *ending) end(ctx context.Context, grace int64) error {
	e.since = time.Now()
	if e.attached != nil {
		e.attached.hurry()
	}
	err := e.agent.Delete(ctx, e.key.Namespace, e.key.Name, "", grace)
	if errdefs.IsNotFound(err) {
		return nil // it is deleted already
	}
	return err
}

// lost ends a run whose connection with its container is lost.
func (e *ending) lost(ctx context.Context) error {
	why := e.attached.failure()
	if why == nil || e.why != nil || !e.since.IsZero() {
		return nil
	}
	e.say("%v", why)
	e.why = why
	return e.end(ctx, -1)
}

// interrupt stops the pod: with grace first, at once when asked again. One signal may both end a
// context and arrive by itself, so what comes right after the first is the same one.
func (e *ending) interrupt(ctx context.Context) error {
	switch {
	case e.asked.IsZero():
		e.asked = time.Now()
		e.say("stopping, for up to %s", e.grace())
		if e.since.IsZero() && !e.Keep {
			return e.end(ctx, -1)
		}
		return nil
	case time.Since(e.asked) < sameSignal:
		return nil
	}
	e.say("stopping at once")
	return e.end(ctx, 0)
}

// code is the exit code, once all logs are drained. On an error it is not 0.
func (e *ending) code(s *server, err error) (int, error) {
	name := e.key.Namespace + "/" + e.key.Name
	err = errors.Join(err, s.lost)
	codes := s.codes(e.pod)
	code := 0
	if i := slices.IndexFunc(codes, func(c int) bool { return c != 0 }); i >= 0 {
		code = codes[i]
	}
	switch {
	case err != nil || e.why != nil:
		return max(code, 1), fmt.Errorf("run pod %q: %w", name, errors.Join(err, e.why))
	case len(codes) == 0 && e.status.Phase == corev1.PodFailed:
		return 1, fmt.Errorf("run pod %q: %s: %s", name, e.status.Reason, e.status.Message)
	case len(codes) == 0 && e.status.Phase == "":
		return 1, fmt.Errorf("run pod %q: interrupted: %w", name, context.Canceled)
	case e.ExitCode == None, e.ExitCode == All && slices.Contains(codes, 0):
		return 0, nil
	case e.status.Phase == corev1.PodFailed && (code == 0 || e.status.Reason != ""): // not the run has
		code = max(code, 1)
		return code, usage.Failure{Code: code, Err: fmt.Errorf("run pod %q: %s: %s", name, e.status.Reason, e.status.Message)}
	}
	return code, nil
}

// permanent are the waiting reasons of containers that do not end by themselves.
var permanent = []string{
	images.ErrImagePull, images.ImagePullBackOff, images.ErrImageNeverPull, images.InvalidImageName, images.ImageInspectError,
	images.RegistryUnavailable, images.SignatureValidationFailed, "CreateContainerConfigError", "CreateContainerError",
}

// blocked says why a pod cannot start. One of which something ran already is left to its agent.
func blocked(pod *corev1.Pod, events []*corev1.Event) error {
	ran := false
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			w, started := c.State.Waiting, c.State.Waiting == nil || c.RestartCount > 0 || c.LastTerminationState.Terminated != nil
			ran = ran || started
			if w != nil && !started && slices.Contains(permanent, w.Reason) {
				return fmt.Errorf("container %s: %s: %s", c.Name, w.Reason, w.Message)
			}
		}
	}
	if ran {
		return nil
	}
	return refused(events)
}

// refused is what an event tells about a pod that cannot be admitted, or whose volumes or sandbox
// cannot be made.
func refused(events []*corev1.Event) error {
	for _, e := range events {
		switch e.Reason {
		case "Ignored", "FailedScheduling", "FailedValidation", "FailedMount", "FailedCreatePodSandBox":
			return fmt.Errorf("%s: %s", e.Reason, e.Message)
		}
	}
	return nil
}
