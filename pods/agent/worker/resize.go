package worker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
)

// Resize applies the resources of a pod to a sandbox and to containers, whose ids are by name: its
// cgroup first, so that its containers find room. Where that has less room than the containers
// still have, they come first. It answers which containers have theirs, also with an error.
//
// # Errors
//
// Less memory than is in use, of which nothing is applied: the kernel would kill for it with cgroup
// version 2, and version 1 refuses it (RE15; the text is a kubelet's).
func (w *Worker) Resize(ctx context.Context, in translate.Input, sandbox string, ids map[string]string) (applied []string, err error) {
	config, _, err := translate.Sandbox(in)
	if err != nil {
		return nil, err
	}
	if err := w.fitsUse(ctx, in, sandbox, config.GetLinux(), ids); err != nil {
		return nil, err
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
			return applied, fmt.Errorf("resize container %q: %w", name, err)
		}
		applied = append(applied, name)
	}
	if early == nil {
		return applied, nil
	}
	if err := whole(); err != nil {
		return applied, fmt.Errorf("resize pod: %w", err)
	}
	return applied, nil
}

// fitsUse is nil if the new limits of memory are not below what a pod and its containers use now.
// Use is never above the present limit: one that stays or grows is not refused. Only a server that
// has no such call is not asked; where the use cannot be read, nothing is known to fit it.
func (w *Worker) fitsUse(ctx context.Context, in translate.Input, sandbox string, pod *runtime.LinuxPodSandboxConfig, ids map[string]string) error {
	resp, err := w.o.CRI.PodSandboxStats(ctx, &runtime.PodSandboxStatsRequest{PodSandboxId: sandbox})
	if errdefs.IsNotImplemented(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read memory usage: %w", err)
	}
	var errs []error
	stats := resp.GetStats().GetLinux()
	limit := pod.GetResources().GetMemoryLimitInBytes()
	if limit > 0 {
		limit += pod.GetOverhead().GetMemoryLimitInBytes()
	}
	if used := stats.GetMemory().GetUsageBytes().GetValue(); limit > 0 && used > uint64(limit) {
		errs = append(errs, fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", limit, used))
	}
	for _, s := range stats.GetContainers() {
		c, _ := Container(in.Pod, s.GetAttributes().GetMetadata().GetName())
		if c == nil || ids[c.Name] != s.GetAttributes().GetId() {
			continue
		}
		limit, used := translate.Resources(in, c).GetMemoryLimitInBytes(), s.GetMemory().GetUsageBytes().GetValue()
		if limit > 0 && used > uint64(limit) {
			errs = append(errs, fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)", c.Name, limit, used))
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return fmt.Errorf("cannot decrease memory limits: %w", err)
	}
	return nil
}
