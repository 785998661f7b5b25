package session

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/crilog"
	"github.com/sunaba-project/sunaba/host/clock"
)

// source is the log of one container.
type source struct {
	pod       *corev1.Pod
	container string
}

// logReader reads logs of containers.
type logReader struct {
	server  runtime.RuntimeServiceClient
	options crilog.Options
	// prefix names the pod and the container before each line; ignore prints errors and continues.
	previous, prefix, follow, ignore bool
	// patience is how long the start of a log that is followed is waited for.
	patience time.Duration
	// find asks for a pod again.
	find        func(context.Context, *corev1.Pod) (*corev1.Pod, error)
	out, errOut io.Writer
}

// read prints logs: one after the other, or all at once if they are followed. The first error ends
// all of them.
func (l *logReader) read(ctx context.Context, sources []source) error {
	l.options.Whole = l.options.Whole || l.follow && len(sources) > 1
	if !l.follow {
		for _, s := range sources {
			if err := l.one(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for _, s := range sources {
		group.Go(func() {
			if err := l.one(ctx, s); err != nil {
				cancel(err) // only the first one counts
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// retryLog is the pause before a log that is followed is asked for again, as kubectl's.
const retryLog = time.Second

// one prints one log. If it is followed, its start is waited for.
func (l *logReader) one(ctx context.Context, s source) error {
	end := time.Now().Add(l.patience)
	path, id, err := l.locate(ctx, s)
	for err != nil && l.follow && !l.ignore && ctx.Err() == nil {
		fmt.Fprintln(l.errOut, err)
		if !time.Now().Add(retryLog).Before(end) {
			return fmt.Errorf("gave up after %s: %w", l.patience, err)
		}
		if err := clock.Sleep(ctx, retryLog); err != nil {
			return err
		}
		var now *corev1.Pod
		if now, err = l.find(ctx, s.pod); err == nil {
			s.pod = now
			path, id, err = l.locate(ctx, s)
		}
	}
	if err == nil {
		err = l.print(ctx, s, path, id)
	}
	if err == nil || !l.ignore || ctx.Err() != nil {
		return err
	}
	_, err = fmt.Fprintf(l.out, "error: %v\n", err) // where kubectl prints it
	return err
}

// locate finds the file of a log, and its container.
func (l *logReader) locate(ctx context.Context, s source) (path, id string, err error) {
	if id, err = loggedContainer(s.pod, s.container, l.previous); err != nil {
		return "", "", err
	}
	status, err := l.server.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id})
	if err = dial.Native(err); errdefs.IsNotFound(err) && l.previous {
		return "", "", noPrevious(s.pod, s.container)
	}
	if err != nil {
		return "", "", fmt.Errorf("container %q in pod %q: %w", s.container, s.pod.Name, err)
	}
	if path = status.GetStatus().GetLogPath(); path == "" {
		return "", "", fmt.Errorf("container %q in pod %q has no log", s.container, s.pod.Name)
	}
	return path, id, nil
}

// print prints a log that was found.
func (l *logReader) print(ctx context.Context, s source, path, id string) error {
	o := l.options
	if l.prefix {
		o.Prefix = fmt.Sprintf("[pod/%s/%s] ", s.pod.Name, s.container)
	}
	if l.follow {
		o.Running = func(ctx context.Context) bool { return l.running(ctx, id) }
	}
	return crilog.Read(ctx, path, o, l.out)
}

// running says whether a container may still write. A server that does not answer, as it is being
// restarted, does not end its containers.
func (l *logReader) running(ctx context.Context, id string) bool {
	status, err := l.server.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return !errdefs.IsNotFound(dial.Native(err))
	}
	state := status.GetStatus().GetState()
	return state == runtime.ContainerState_CONTAINER_RUNNING || state == runtime.ContainerState_CONTAINER_CREATED
}
