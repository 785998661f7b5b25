package agent

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
)

// retryWatch is the pause before the CRI server is asked again after it did not answer.
const retryWatch = time.Second

// watcher follows the CRI server's events. After each new subscription it lists once what is there.
type watcher struct{ l *loop }

func newWatcher(l *loop) *watcher { return &watcher{l} }

// run follows the events until the context ends.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.l.o.CRI.Events(ctx, func(e *runtime.ContainerEventResponse) { w.event(ctx, e) })
		w.l.views.Listen(false)
		if ctx.Err() != nil {
			return
		}
		w.l.o.Logger.Warn("failed to follow events of the CRI server", "error", err)
		if !w.l.pause(retryWatch) {
			return
		}
	}
}

// event takes in an event, or lists what is there at the start of a subscription.
func (w *watcher) event(ctx context.Context, e *runtime.ContainerEventResponse) {
	if e != nil {
		w.l.post(func() { w.happened(e) })
		return
	}
	for told := false; ctx.Err() == nil; told = true {
		err := w.list(ctx)
		if err == nil {
			w.l.views.Listen(true)
			return
		}
		if !told {
			w.l.o.Logger.Warn("failed to list sandboxes", "error", err)
		}
		if !w.l.pause(retryWatch) {
			return
		}
	}
}

// list asks for all sandboxes with the agent's mark, and their containers.
func (w *watcher) list(ctx context.Context) error {
	turns := make(chan map[string]uint64, 1)
	w.l.post(func() { turns <- w.turns() })
	var asked map[string]uint64
	select {
	case asked = <-turns:
	case <-ctx.Done():
		return ctx.Err()
	}
	list, err := w.l.o.CRI.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var all []*runtime.PodSandboxStatusResponse
	for _, s := range list.GetItems() {
		if _, ours := w.podUID(s.GetAnnotations(), s.GetLabels()); !ours {
			continue
		}
		status, err := w.l.o.CRI.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		all = append(all, status)
	}
	w.l.post(func() { w.takeList(asked, all) })
	return nil
}

// turns are the turns of all pods' observations.
func (w *watcher) turns() map[string]uint64 {
	turns := map[string]uint64{}
	for uid, p := range w.l.pods {
		turns[uid] = p.seen.Turn
	}
	return turns
}

// happened takes in one event.
func (w *watcher) happened(e *runtime.ContainerEventResponse) {
	s := e.GetPodSandboxStatus()
	uid, ours := w.podUID(s.GetAnnotations(), s.GetLabels())
	p := w.l.pods[uid]
	if !ours || p == nil {
		return
	}
	now := w.l.o.now()
	deleted := e.GetContainerEventType() == runtime.ContainerEventType_CONTAINER_DELETED_EVENT
	if deleted {
		p.seen.Remove(e.GetContainerId(), now)
	}
	p.seen.Take(s, e.GetContainersStatuses())
	w.l.steps.release(p)
	w.l.steps.step(p)
}

// takeList takes in all sandboxes of the agent. asked are the turns before the list was asked for.
func (w *watcher) takeList(asked map[string]uint64, all []*runtime.PodSandboxStatusResponse) {
	now := w.l.o.now()
	present := map[string]bool{}
	var unknown []*runtime.PodSandboxStatusResponse
	for _, s := range all {
		uid, _ := w.podUID(s.GetStatus().GetAnnotations(), s.GetStatus().GetLabels())
		present[s.GetStatus().GetId()] = true
		if p := w.l.pods[uid]; p != nil {
			p.seen.TakeAll(asked[uid], s.GetStatus(), s.GetContainersStatuses(), now)
		} else {
			unknown = append(unknown, s)
		}
	}
	for uid, p := range w.l.pods {
		for id, s := range p.seen.Sandboxes {
			if !present[id] && s.Since <= asked[uid] {
				p.seen.Remove(id, now)
			}
		}
		w.l.steps.release(p)
	}
	w.l.orphans.list = append(w.l.orphans.list, unknown...)
	if first := !w.l.listed; first {
		w.l.listed = true
		w.l.start()
		return
	}
	w.l.orphans.endOrphans()
	for _, p := range w.l.ordered() {
		w.l.steps.step(p)
	}
}

// podUID is the UID of the pod of a sandbox, if that carries the agent's mark.
func (w *watcher) podUID(annotations, labels map[string]string) (string, bool) {
	in := translate.Input{Mark: w.l.mark, Run: w.l.o.RunMark != ""}
	return labels[translate.PodUIDLabel], in.Marked(annotations)
}
