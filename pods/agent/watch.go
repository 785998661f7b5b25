package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/follow"
	"github.com/sunaba-project/sunaba/pods/agent/outside"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// watcher takes in what happens in the CRI server.
type watcher struct{ l *loop }

// run follows the events until the context ends.
func (w *watcher) run(ctx context.Context) {
	others := w.l.users.Listed
	if w.l.o.Users != nil {
		others = nil // the run has chosen user ids that none of them has
	}
	follow.Run(ctx, follow.Options{
		Others: others,
		CRI:    w.l.o.CRI, Turns: w.turns, Listed: w.takeList, Happened: w.happened, Post: w.l.post,
		Ours: func(annotations, labels map[string]string) bool {
			_, ours := w.podUID(annotations, labels)
			return ours
		},
		Listening: w.l.views.Listen, Pause: w.l.pause, Logger: w.l.o.Logger,
	})
}

// stops records who stops the pods, until the context ends.
func (w *watcher) stops(ctx context.Context) {
	w.l.o.Stops(ctx, func(s outside.Stop) { w.l.post(func() { w.stopped(s) }) })
}

// stopped records that a container or sandbox of a pod is stopped by another process (A.3).
func (w *watcher) stopped(s outside.Stop) {
	uid, ours := w.podUID(s.Annotations, s.Labels)
	if p := w.l.pods[uid]; ours && p != nil {
		w.l.event(p.rec.Pod, s.Container, corev1.EventTypeWarning, outside.Reason, s.Message())
	}
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
	w.l.users.Happened(e)
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
		w.l.users.See(s.GetStatus())
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
