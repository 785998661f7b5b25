package scenario

import (
	"context"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const noSuchID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// What the kubelet repeats must succeed again, also for what never was.
func TestIdempotence(t *testing.T) {
	m := start(t)
	m.pull(world.Batch)
	ctx := t.Context()
	for _, handler := range everyHandler {
		p := m.run(handler)
		c := p.begin(counter())
		for range 2 {
			c.stop(0)
			p.stop()
		}
		for range 2 {
			if _, err := m.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: c.id}); err != nil {
				t.Errorf("remove container: %v", err)
			}
			p.remove()
		}
	}
	if _, err := m.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: noSuchID}); err != nil {
		t.Errorf("stop a container that never was: %v", err)
	}
	if _, err := m.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: noSuchID}); err != nil {
		t.Errorf("remove a container that never was: %v", err)
	}
	if _, err := m.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: noSuchID}); err != nil {
		t.Errorf("stop a pod that never was: %v", err)
	}
	if _, err := m.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: noSuchID}); err != nil {
		t.Errorf("remove a pod that never was: %v", err)
	}
}

// Requests for the removal of one container at once are no errors, also while it is started: it
// runs then at no time after that they were answered.
func TestRemovalsAtOnce(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	for _, starts := range []bool{false, true} {
		for range 5 {
			c := p.create(sh("sleep 1000"))
			var all sync.WaitGroup
			if starts {
				all.Go(func() { // which of the two comes first is open
					_, _ = m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: c.id})
				})
			}
			for range 3 {
				all.Go(func() {
					_, err := m.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: c.id})
					if err != nil {
						t.Errorf("remove, while it is started (%t): %v", starts, err)
					}
				})
			}
			all.Wait()
			if _, err := m.ContainerStatus(t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id}); grpcstatus.Code(err) != codes.NotFound {
				t.Errorf("status of the removed container: %v", err)
			}
		}
	}
}

// A running container and a running pod can be removed without being stopped first.
func TestRemoveWithoutStop(t *testing.T) {
	m := start(t)
	m.pull(world.Batch)
	for _, handler := range everyHandler {
		p := m.run(handler)
		c := p.begin(counter())
		p.begin(counter())
		if _, err := m.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: c.id}); err != nil {
			t.Errorf("under %s: remove a running container: %v", handler, err)
		}
		p.remove()
		m.clean()
	}
}

// Each wrong request has the code that its caller looks for.
func TestCodes(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	ctx := t.Context()
	p := m.run("runc")
	stopped := m.run("runc")
	stopped.stop()
	c := p.begin(sh("sleep 1000"))

	create := func(p *pod, change func(*runtime.ContainerConfig)) error {
		config := sh("true")
		change(config)
		_, err := p.tryCreate(config)
		return err
	}
	run := func(change func(*runtime.PodSandboxConfig)) error {
		config := m.podConfig("wrong")
		change(config)
		_, err := m.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config})
		return err
	}
	for name, test := range map[string]struct {
		err  func() error
		code codes.Code
	}{
		"status of no pod": {func() error {
			_, err := m.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: noSuchID})
			return err
		}, codes.NotFound},
		"status of no container": {func() error {
			_, err := m.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: noSuchID})
			return err
		}, codes.NotFound},
		"start of no container": {func() error {
			_, err := m.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: noSuchID})
			return err
		}, codes.NotFound},
		"start of a running container": {func() error {
			_, err := m.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: c.id})
			return err
		}, codes.FailedPrecondition},
		"container in no pod": {func() error {
			return create(&pod{machine: m, id: noSuchID, config: p.config}, func(*runtime.ContainerConfig) {})
		}, codes.NotFound},
		"container in a stopped pod": {func() error {
			return create(stopped, func(*runtime.ContainerConfig) {})
		}, codes.FailedPrecondition},
		"container of an image that is not here": {func() error {
			return create(p, func(c *runtime.ContainerConfig) { c.Image = &runtime.ImageSpec{Image: world.Registry.Host + "/none:1"} })
		}, codes.NotFound},
		"container without metadata": {func() error {
			return create(p, func(c *runtime.ContainerConfig) { c.Metadata = nil })
		}, codes.InvalidArgument},
		"container without an image": {func() error {
			return create(p, func(c *runtime.ContainerConfig) { c.Image = nil })
		}, codes.InvalidArgument},
		"container that runs as a group only": {func() error {
			return create(p, func(c *runtime.ContainerConfig) {
				c.Linux.SecurityContext = &runtime.LinuxContainerSecurityContext{RunAsGroup: &runtime.Int64Value{Value: 1}}
			})
		}, codes.InvalidArgument},
		"privileged container in a pod that is not": {func() error {
			return create(p, func(c *runtime.ContainerConfig) {
				c.Linux.SecurityContext = &runtime.LinuxContainerSecurityContext{Privileged: true}
			})
		}, codes.InvalidArgument},
		"pod without a configuration": {func() error {
			_, err := m.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{})
			return err
		}, codes.InvalidArgument},
		"pod without metadata": {func() error {
			return run(func(c *runtime.PodSandboxConfig) { c.Metadata = nil })
		}, codes.InvalidArgument},
		"pod of a name that is taken": {func() error {
			return run(func(c *runtime.PodSandboxConfig) { c.Metadata = p.config.GetMetadata() })
		}, codes.AlreadyExists},
		"command with a zero byte": {func() error {
			_, err := m.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"echo", "a\x00b"}})
			return err
		}, codes.InvalidArgument},
		"command with a zero byte, by a stream": {func() error {
			_, err := m.Exec(ctx, &runtime.ExecRequest{ContainerId: c.id, Cmd: []string{"echo", "a\x00b"}, Stdout: true})
			return err
		}, codes.InvalidArgument},
		"image of an impossible port": {func() error {
			_, err := m.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: "localhost:99999/x"}})
			return err
		}, codes.InvalidArgument},
		"stats of no container": {func() error {
			_, err := m.ContainerStats(ctx, &runtime.ContainerStatsRequest{ContainerId: noSuchID})
			return err
		}, codes.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.err()
			if got := grpcstatus.Code(err); got != test.code {
				t.Errorf("%v, want %v", err, test.code)
			}
			if err != nil && strings.TrimSpace(grpcstatus.Convert(err).Message()) == "" {
				t.Error("an error without a text")
			}
		})
	}
}

// Lists never fail for what is not there.
func TestListsOfNothing(t *testing.T) {
	m := start(t)
	ctx := t.Context()
	pods, err := m.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{Id: noSuchID}})
	if err != nil || len(pods.GetItems()) != 0 {
		t.Errorf("pods: %v, %v", pods, err)
	}
	containers, err := m.ListContainers(ctx, &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{PodSandboxId: noSuchID}})
	if err != nil || len(containers.GetContainers()) != 0 {
		t.Errorf("containers: %v, %v", containers, err)
	}
	stats, err := m.ListContainerStats(ctx, &runtime.ListContainerStatsRequest{})
	if err != nil || len(stats.GetStats()) != 0 {
		t.Errorf("stats: %v, %v", stats, err)
	}
	if image := m.imageStatus("nothing.invalid/none:1"); image != nil {
		t.Errorf("image: %v", image)
	}
}

// A caller that went away stops what it asked for.
func TestCancelledPull(t *testing.T) {
	m := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 1e6) // 1 ms
	defer cancel()
	_, err := m.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: world.Greeter}})
	if grpcstatus.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	m.PullAndCompile(world.Greeter, "")
}

// Labels and annotations come back as they were given.
func TestLabelsAndAnnotations(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	labels, annotations := map[string]string{"a": "1"}, map[string]string{"b/c": "two\nlines"}
	p := m.run("runc", func(config *runtime.PodSandboxConfig) { config.Labels, config.Annotations = labels, annotations })
	config := sh("true")
	config.Labels, config.Annotations = labels, annotations
	c := p.create(config)
	status := p.status().GetStatus()
	if status.GetLabels()["a"] != "1" || status.GetAnnotations()["b/c"] != "two\nlines" || len(status.GetLabels()) != 1 || len(status.GetAnnotations()) != 1 {
		t.Errorf("pod: %v, %v", status.GetLabels(), status.GetAnnotations())
	}
	cs := c.status()
	if cs.GetLabels()["a"] != "1" || cs.GetAnnotations()["b/c"] != "two\nlines" || len(cs.GetLabels()) != 1 || len(cs.GetAnnotations()) != 1 {
		t.Errorf("container: %v, %v", cs.GetLabels(), cs.GetAnnotations())
	}
	if cs.GetState() != runtime.ContainerState_CONTAINER_CREATED {
		t.Errorf("a created container is %v", cs.GetState())
	}
	for label, want := range map[string]int{"1": 1, "2": 0} {
		list, err := m.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{LabelSelector: map[string]string{"a": label}}})
		if err != nil || len(list.GetItems()) != want {
			t.Errorf("pods with a=%s: %v, %v", label, list, err)
		}
	}
}
