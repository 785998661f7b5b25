package scenario

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Half a minute of four parallel lives of pods under both kinds of handler leaves nothing behind.
func TestCyclesLeaveNothing(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	limit := 30 * time.Second
	if testing.Short() {
		limit = 3 * time.Second
	}
	var cycles atomic.Int64
	var wait sync.WaitGroup
	problems := make(chan error, 4)
	end := time.Now().Add(limit)
	for worker := range 4 {
		wait.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				if err := m.cycle(everyHandler[(worker+i)%len(everyHandler)], i%2 == 0); err != nil {
					problems <- fmt.Errorf("worker %d, cycle %d: %w", worker, i, err)
					return
				}
				cycles.Add(1)
			}
		})
	}
	wait.Wait()
	close(problems)
	for err := range problems {
		t.Error(err)
	}
	t.Logf("%d cycles in %v", cycles.Load(), limit)
	if cycles.Load() == 0 {
		t.Error("no cycle ended")
	}
	m.clean()
}

// cycle is one life of a pod with one container; polite stops the container first.
func (m *machine) cycle(handler string, polite bool) error {
	ctx := m.t.Context()
	config := m.podConfig("cycle")
	run, err := m.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return fmt.Errorf("run under %s: %w", handler, err)
	}
	m.Ran(run.GetPodSandboxId())
	p := &pod{machine: m, id: run.GetPodSandboxId(), handler: handler, config: config}
	program := sh("echo up; sleep 1000")
	if handler == "wasm" {
		program = containerConfig(world.Guest, "idle")
	}
	c, err := p.tryCreate(program)
	if err != nil {
		return fmt.Errorf("create under %s: %w", handler, err)
	}
	if _, err := m.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: c.id}); err != nil {
		return fmt.Errorf("start under %s: %w", handler, err)
	}
	if _, err := m.ListContainers(ctx, &runtime.ListContainersRequest{}); err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	if _, err := m.ListContainerStats(ctx, &runtime.ListContainerStatsRequest{}); err != nil {
		return fmt.Errorf("list stats: %w", err)
	}
	if polite {
		if _, err := m.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: c.id}); err != nil {
			return fmt.Errorf("stop under %s: %w", handler, err)
		}
		if _, err := m.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: c.id}); err != nil {
			return fmt.Errorf("remove under %s: %w", handler, err)
		}
	}
	if _, err := m.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		return fmt.Errorf("stop the pod under %s: %w", handler, err)
	}
	if _, err := m.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		return fmt.Errorf("remove the pod under %s: %w", handler, err)
	}
	return nil
}
