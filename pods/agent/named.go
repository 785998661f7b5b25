package agent

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/pods/agent/inputs"
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
				names = append(names, inputs.Images(pod)...)
			}
		}
		for _, p := range l.pods {
			names = append(names, inputs.Images(p.rec.Pod)...)
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
