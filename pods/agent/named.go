package agent

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

// namedImages are the images that objects of this node name (IM13): those of all pods, in the form
// that is wanted and in the one that runs, also when an edit of it waits for a pull. It may be
// called by any goroutine except the loop's own.
//
// # Errors
//
// ErrUnavailable before the objects and what runs are known; the context's.
func (l *loop) namedImages(ctx context.Context) ([]string, error) {
	var names []string
	err := l.ask(ctx, func() error {
		if !l.listed || !l.wanted {
			return fmt.Errorf("list images of pods: the pods are not known yet: %w", errdefs.ErrUnavailable)
		}
		for _, e := range l.o.Desired.Objects() {
			if pod := e.Pod(); pod != nil && (pod.Spec.NodeName == "" || pod.Spec.NodeName == l.o.Node.Name) {
				names = append(names, imagesOf(pod)...)
			}
		}
		for _, p := range l.pods {
			names = append(names, imagesOf(p.rec.Pod)...)
			for _, c := range p.rec.Containers {
				for _, last := range []string{c.Image, c.ImageID} {
					if last != "" {
						names = append(names, last)
					}
				}
			}
		}
		return nil
	})
	return names, err
}

// imagesOf are the images that a pod names: of containers and of volumes.
func imagesOf(pod *corev1.Pod) []string {
	var names []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Image)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Image)
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			names = append(names, image.Reference)
		}
	}
	return names
}
