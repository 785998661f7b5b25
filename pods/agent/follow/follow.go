// Package follow follows the events of a CRI server. After each new subscription it lists once what
// is there.
package follow

import (
	"context"
	"log/slog"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// retry is the pause before the CRI server is asked again after it did not answer.
const retry = time.Second

// Options configure Run.
type Options struct {
	CRI interface {
		ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error)
		PodSandboxStatus(context.Context, *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error)
		Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error
	}
	// Ours says whether a sandbox is the caller's.
	Ours func(annotations, labels map[string]string) bool
	// Turns are called before a listing, Others with the sandboxes that are not ours, unless it is
	// nil, Listed then with what Turns said and the sandboxes that are ours, Happened with each
	// event. Post calls them.
	Turns    func() map[string]uint64
	Others   func([]*runtime.PodSandboxStatus)
	Listed   func(asked map[string]uint64, all []*runtime.PodSandboxStatusResponse)
	Happened func(*runtime.ContainerEventResponse)
	Post     func(f func())
	// Listening is told whether events are followed, Pause waits and says whether to go on.
	Listening func(bool)
	Pause     func(time.Duration) bool
	Logger    *slog.Logger
}

// Run follows the events until the context ends.
func Run(ctx context.Context, o Options) {
	for ctx.Err() == nil {
		err := o.CRI.Events(ctx, func(e *runtime.ContainerEventResponse) { o.event(ctx, e) })
		o.Listening(false)
		if ctx.Err() != nil {
			return
		}
		o.Logger.Warn("failed to follow events of the CRI server", "error", err)
		if !o.Pause(retry) {
			return
		}
	}
}

// event hands on an event, or lists what is there at the start of a subscription.
func (o *Options) event(ctx context.Context, e *runtime.ContainerEventResponse) {
	if e != nil {
		o.Post(func() { o.Happened(e) })
		return
	}
	for told := false; ctx.Err() == nil; told = true {
		err := o.list(ctx)
		if err == nil {
			o.Listening(true)
			return
		}
		if !told {
			o.Logger.Warn("failed to list sandboxes", "error", err)
		}
		if !o.Pause(retry) {
			return
		}
	}
}

// list asks for all sandboxes that are of concern, and their containers.
func (o *Options) list(ctx context.Context) error {
	turns := make(chan map[string]uint64, 1)
	o.Post(func() { turns <- o.Turns() })
	var asked map[string]uint64
	select {
	case asked = <-turns:
	case <-ctx.Done():
		return ctx.Err()
	}
	list, err := o.CRI.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var all []*runtime.PodSandboxStatusResponse
	var others []*runtime.PodSandboxStatus
	for _, s := range list.GetItems() {
		ours := o.Ours(s.GetAnnotations(), s.GetLabels())
		if !ours && o.Others == nil {
			continue
		}
		status, err := o.CRI.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if ours {
			all = append(all, status)
		} else {
			others = append(others, status.GetStatus())
		}
	}
	o.Post(func() {
		if o.Others != nil {
			o.Others(others)
		}
		o.Listed(asked, all)
	})
	return nil
}
