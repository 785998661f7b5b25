// Package usage measures what pods take of their node.
package usage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// Sample is a pod that is to be measured. Nothing in it changes.
type Sample struct {
	Pod     *corev1.Pod
	Sandbox string            // "" to measure no containers
	Logs    map[string]string // folders of the logs of containers that run, by name
	// Volumes says which volumes are measured.
	Volumes func(*corev1.Volume) bool
}

// CRI is the call that is needed of a CRI server.
type CRI interface {
	PodSandboxStats(context.Context, *runtime.PodSandboxStatsRequest) (*runtime.PodSandboxStatsResponse, error)
}

// Volumes measure volumes of pods: a *volumes.Manager.
type Volumes interface {
	Usage(ctx context.Context, pod *corev1.Pod, wanted func(*corev1.Volume) bool) (map[string]space.Use, error)
}

// Measure measures a pod: its volumes, and the memory, processes, writable layers and logs of its
// containers.
func Measure(ctx context.Context, cri CRI, volumes Volumes, s Sample) (*pressure.Use, error) {
	use := &pressure.Use{Volumes: map[string]pressure.Room{}}
	sizes, err := volumes.Usage(ctx, s.Pod, s.Volumes)
	if err != nil {
		return nil, err
	}
	for name, u := range sizes {
		use.Volumes[name] = roomOf(u)
	}
	if s.Sandbox == "" {
		return use, nil
	}
	resp, err := cri.PodSandboxStats(ctx, &runtime.PodSandboxStatsRequest{PodSandboxId: s.Sandbox})
	if err != nil {
		return nil, err
	}
	linux := resp.GetStats().GetLinux()
	use.Memory = int64(linux.GetMemory().GetWorkingSetBytes().GetValue())
	use.Processes = int64(linux.GetProcess().GetProcessCount().GetValue())
	for _, c := range linux.GetContainers() {
		one := pressure.ContainerUse{
			Name: c.GetAttributes().GetMetadata().GetName(), Memory: int64(c.GetMemory().GetWorkingSetBytes().GetValue()),
			Layer: pressure.Room{
				Bytes: int64(c.GetWritableLayer().GetUsedBytes().GetValue()), Inodes: int64(c.GetWritableLayer().GetInodesUsed().GetValue()),
			},
		}
		if dir := s.Logs[one.Name]; dir != "" {
			u, err := space.Used(ctx, dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("measure logs of container %q: %w", one.Name, err)
			}
			one.Logs = roomOf(u)
		}
		use.Containers = append(use.Containers, one)
	}
	return use, nil
}

func roomOf(u space.Use) pressure.Room { return pressure.Room{Bytes: u.Bytes, Inodes: u.Inodes} }
