package worker

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// prefetch pulls the images of containers that start after the one of a job, while that starts
// (SO4): one after the other, so that they take one place among the parallel pulls.
func (w *Worker) prefetch(j Job) {
	later := laterContainers(j.Pod, j.Container, j.Action.Attempt)
	if len(later) == 0 {
		return
	}
	uid := string(j.Pod.UID)
	w.o.Go(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if !w.fetch(uid, cancel) {
			return
		}
		defer w.fetched(uid)
		for i := range later {
			c := &later[i]
			if r, err := w.request(j, c.Name, c.Image, c.ImagePullPolicy); err == nil && ctx.Err() == nil {
				w.o.Images.Prefetch(ctx, r)
			}
		}
	})
}

// laterContainers are those whose images may be pulled while one starts: after a regular container
// all others, after an init container the next one, since it may fail. One that is started again
// has failed perhaps.
func laterContainers(pod *corev1.Pod, name string, attempt uint32) []corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return pod.Spec.Containers[i+1:]
		}
	}
	for i := range pod.Spec.InitContainers {
		switch {
		case pod.Spec.InitContainers[i].Name != name || attempt > 0:
		case i+1 < len(pod.Spec.InitContainers):
			return pod.Spec.InitContainers[i+1 : i+2]
		case len(pod.Spec.Containers) > 0:
			return pod.Spec.Containers[:1]
		}
	}
	return nil
}

// fetch notes how to end the pulls ahead of a pod, and says whether no pull is active.
func (w *Worker) fetch(uid string, cancel context.CancelFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fetching[uid] != nil {
		return false
	}
	w.fetching[uid] = cancel
	return true
}

func (w *Worker) fetched(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fetching, uid)
}
