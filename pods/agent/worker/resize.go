package worker

import (
	"context"
	"fmt"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
)

// Resize applies the resources of a pod to a sandbox and to containers, whose ids are by name: its
// cgroup first, so that its containers find room. Where that has less room than the containers
// still have, they come first.
func (w *Worker) Resize(ctx context.Context, in translate.Input, sandbox string, ids map[string]string) error {
	config, _, err := translate.Sandbox(in)
	if err != nil {
		return err
	}
	whole := func() error {
		_, err := w.o.CRI.UpdatePodSandboxResources(ctx, &runtime.UpdatePodSandboxResourcesRequest{
			PodSandboxId: sandbox, Overhead: config.GetLinux().GetOverhead(), Resources: config.GetLinux().GetResources(),
		})
		return err
	}
	early := whole()
	for name, id := range ids {
		c, _ := Container(in.Pod, name)
		if _, err := w.o.CRI.UpdateContainerResources(ctx, &runtime.UpdateContainerResourcesRequest{
			ContainerId: id, Linux: translate.Resources(in, c),
		}); err != nil {
			return fmt.Errorf("resize container %q: %w", name, err)
		}
	}
	if early == nil {
		return nil
	}
	if err := whole(); err != nil {
		return fmt.Errorf("resize pod: %w", err)
	}
	return nil
}
