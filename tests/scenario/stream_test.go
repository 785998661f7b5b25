package scenario

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// drain collects the ids of all items of a stream, whose messages must have some.
func drain[M any](t *testing.T, stream grpc.ServerStreamingClient[M], err error, ids func(*M) []string) []string {
	t.Helper()
	var all []string
	for err == nil {
		var message *M
		if message, err = stream.Recv(); err == nil {
			part := ids(message)
			if len(part) == 0 {
				t.Error("an empty message")
			}
			all = append(all, part...)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	slices.Sort(all)
	return all
}

// idsOf are the ids of a list's items.
func idsOf[T any](items []T, id func(T) string) []string {
	out := []string{}
	for _, item := range items {
		out = append(out, id(item))
	}
	slices.Sort(out)
	return out
}

// Every list that can be streamed has the same items either way, each once, and with a filter that
// nothing passes none.
func TestStreamedLists(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	oci, wasm := m.run("runc"), m.run("wasm")
	for range 2 {
		oci.begin(sh("sleep 1000"))
		wasm.begin(containerConfig(world.Guest, "idle"))
	}
	oci.begin(sh("exit 0")).wait()
	m.run("runc").stop()
	ctx := t.Context()
	podID := func(p *runtime.PodSandbox) string { return p.GetId() }
	containerID := func(c *runtime.Container) string { return c.GetId() }
	statsID := func(c *runtime.ContainerStats) string { return c.GetAttributes().GetId() }
	podStatsID := func(p *runtime.PodSandboxStats) string {
		return fmt.Sprint(p.GetAttributes().GetId(), len(p.GetLinux().GetContainers()))
	}
	imageID := func(i *runtime.Image) string { return fmt.Sprint(i.GetId(), i.GetRepoTags()) }
	for _, filter := range []string{"", oci.id, wasm.id[:20], noSuchID} {
		pods := must(m.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{Id: filter}}))
		podStream, err := m.StreamPodSandboxes(ctx, &runtime.StreamPodSandboxesRequest{Filter: &runtime.PodSandboxFilter{Id: filter}})
		got := drain(t, podStream, err, func(r *runtime.StreamPodSandboxesResponse) []string { return idsOf(r.GetPodSandboxes(), podID) })
		same(t, "pods "+filter, got, idsOf(pods.GetItems(), podID))

		containers := must(m.ListContainers(ctx, &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{PodSandboxId: filter}}))
		containerStream, err := m.StreamContainers(ctx, &runtime.StreamContainersRequest{Filter: &runtime.ContainerFilter{PodSandboxId: filter}})
		got = drain(t, containerStream, err, func(r *runtime.StreamContainersResponse) []string { return idsOf(r.GetContainers(), containerID) })
		same(t, "containers "+filter, got, idsOf(containers.GetContainers(), containerID))

		stats := must(m.ListContainerStats(ctx, &runtime.ListContainerStatsRequest{Filter: &runtime.ContainerStatsFilter{PodSandboxId: filter}}))
		statsStream, err := m.StreamContainerStats(ctx, &runtime.StreamContainerStatsRequest{Filter: &runtime.ContainerStatsFilter{PodSandboxId: filter}})
		got = drain(t, statsStream, err, func(r *runtime.StreamContainerStatsResponse) []string { return idsOf(r.GetContainerStats(), statsID) })
		same(t, "container stats "+filter, got, idsOf(stats.GetStats(), statsID))

		podStats := must(m.ListPodSandboxStats(ctx, &runtime.ListPodSandboxStatsRequest{Filter: &runtime.PodSandboxStatsFilter{Id: filter}}))
		podStatsStream, err := m.StreamPodSandboxStats(ctx, &runtime.StreamPodSandboxStatsRequest{Filter: &runtime.PodSandboxStatsFilter{Id: filter}})
		got = drain(t, podStatsStream, err, func(r *runtime.StreamPodSandboxStatsResponse) []string {
			return idsOf(r.GetPodSandboxStats(), podStatsID)
		})
		same(t, "pod stats "+filter, got, idsOf(podStats.GetStats(), podStatsID))
	}
	for _, filter := range []*runtime.ImageFilter{nil, {Image: &runtime.ImageSpec{Image: world.Busybox}}, {Image: &runtime.ImageSpec{Image: world.Registry.Host + "/none:1"}}} {
		images := must(m.ListImages(ctx, &runtime.ListImagesRequest{Filter: filter}))
		imageStream, err := m.StreamImages(ctx, &runtime.StreamImagesRequest{Filter: filter})
		got := drain(t, imageStream, err, func(r *runtime.StreamImagesResponse) []string { return idsOf(r.GetImages(), imageID) })
		same(t, fmt.Sprint("images ", filter), got, idsOf(images.GetImages(), imageID))
	}
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: streamed %q, listed %q", what, got, want)
	}
}

// A pod's status has those of its containers, of one moment, and a time that events can be compared
// with.
func TestPodStatusHasItsContainers(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	a, b, c := p.begin(sh("sleep 1000")), p.create(sh("true")), p.begin(sh("exit 3"))
	c.wait()
	events, err := m.GetContainerEvents(t.Context(), &runtime.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil {
		t.Fatal(err)
	}
	status := must(m.PodSandboxStatus(t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id}))
	states := map[string]runtime.ContainerState{}
	for _, s := range status.GetContainersStatuses() {
		states[s.GetId()] = s.GetState()
		if s.GetId() == c.id && (s.GetExitCode() != 3 || s.GetReason() != "Error" || s.GetFinishedAt() == 0) {
			t.Errorf("the ended container: %v", s)
		}
		if s.GetImageId() == "" || s.GetImageRef() == "" || s.GetImage().GetImage() != world.Busybox || s.GetMetadata().GetName() == "" || s.GetCreatedAt() == 0 {
			t.Errorf("a status that kubelets refuse: %v", s)
		}
	}
	if len(states) != 3 || states[a.id] != runtime.ContainerState_CONTAINER_RUNNING || states[b.id] != runtime.ContainerState_CONTAINER_CREATED || states[c.id] != runtime.ContainerState_CONTAINER_EXITED {
		t.Errorf("states: %v", states)
	}
	b.start()
	for {
		event, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if event.GetContainerId() != b.id {
			continue // kept from before
		}
		if event.GetContainerEventType() == runtime.ContainerEventType_CONTAINER_STOPPED_EVENT {
			break
		}
		started := event.GetContainerEventType() == runtime.ContainerEventType_CONTAINER_STARTED_EVENT
		if started && (event.GetCreatedAt() <= status.GetTimestamp() || event.GetPodSandboxStatus().GetId() != p.id || len(event.GetContainersStatuses()) != 3) {
			t.Errorf("the start is of %d, the status of %d: %v", event.GetCreatedAt(), status.GetTimestamp(), event)
		}
	}
}
