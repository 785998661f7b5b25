package server

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/checkpoint"
	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/criserver/state"
)

// containerAPI answers the requests about containers.
type containerAPI struct {
	sandboxes   *sandbox.Manager
	containers  *container.Manager
	sessions    *session.Manager
	checkpoints *checkpoint.Service
	network     network.Network
}

func (a *containerAPI) CreateContainer(ctx context.Context, r *runtime.CreateContainerRequest) (*runtime.CreateContainerResponse, error) {
	if announced, ok := a.network.(network.Announced); ok {
		if err := announced.Mounts(writable(r.GetConfig().GetMounts())); err != nil {
			return nil, err
		}
	}
	id, err := a.checkpoints.Create(ctx, r.GetPodSandboxId(), r.GetConfig())
	if err != nil {
		return nil, err
	}
	return &runtime.CreateContainerResponse{ContainerId: id}, nil
}

// writable are the folders of the node that a container may write.
func writable(mounts []*runtime.Mount) []string {
	var folders []string
	for _, m := range mounts {
		if m.GetHostPath() != "" && !m.GetReadonly() {
			folders = append(folders, m.GetHostPath())
		}
	}
	return folders
}

func (a *containerAPI) StartContainer(ctx context.Context, r *runtime.StartContainerRequest) (*runtime.StartContainerResponse, error) {
	return &runtime.StartContainerResponse{}, a.containers.Start(ctx, r.GetContainerId())
}

func (a *containerAPI) StopContainer(ctx context.Context, r *runtime.StopContainerRequest) (*runtime.StopContainerResponse, error) {
	return &runtime.StopContainerResponse{}, a.containers.Stop(ctx, r.GetContainerId(), seconds(r.GetTimeout()))
}

func (a *containerAPI) RemoveContainer(ctx context.Context, r *runtime.RemoveContainerRequest) (*runtime.RemoveContainerResponse, error) {
	return &runtime.RemoveContainerResponse{}, a.containers.Remove(ctx, r.GetContainerId())
}

func (a *containerAPI) ListContainers(_ context.Context, r *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	return &runtime.ListContainersResponse{Containers: a.list(r.GetFilter())}, nil
}

func (a *containerAPI) StreamContainers(r *runtime.StreamContainersRequest, out runtime.RuntimeService_StreamContainersServer) error {
	return inBatches(a.list(r.GetFilter()), func(part []*runtime.Container) error {
		return out.Send(&runtime.StreamContainersResponse{Containers: part})
	})
}

func (a *containerAPI) list(f *runtime.ContainerFilter) []*runtime.Container {
	return items(a.containers.List(), func(rec state.Container) bool {
		return matches(f, rec.ID, rec.Config.Value.GetLabels()) && strings.HasPrefix(rec.SandboxID, f.GetPodSandboxId()) &&
			(f.GetState() == nil || f.GetState().GetState() == containerState(rec))
	}, containerItem)
}

func (a *containerAPI) ContainerStatus(_ context.Context, r *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	rec, err := a.containers.Get(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	resp := &runtime.ContainerStatusResponse{Status: containerStatus(rec)}
	if r.GetVerbose() {
		if resp.Info, err = a.containerInfo(rec); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

func (a *containerAPI) UpdateContainerResources(ctx context.Context, r *runtime.UpdateContainerResourcesRequest) (*runtime.UpdateContainerResourcesResponse, error) {
	return &runtime.UpdateContainerResourcesResponse{}, a.containers.Update(ctx, r.GetContainerId(), r.GetLinux())
}

func (a *containerAPI) ReopenContainerLog(ctx context.Context, r *runtime.ReopenContainerLogRequest) (*runtime.ReopenContainerLogResponse, error) {
	return &runtime.ReopenContainerLogResponse{}, a.containers.ReopenLog(ctx, r.GetContainerId())
}

func (a *containerAPI) ExecSync(ctx context.Context, r *runtime.ExecSyncRequest) (*runtime.ExecSyncResponse, error) {
	out, err := a.sessions.ExecSync(ctx, r.GetContainerId(), r.GetCmd(), seconds(r.GetTimeout()))
	if err != nil {
		return nil, err
	}
	return &runtime.ExecSyncResponse{Stdout: out.Stdout, Stderr: out.Stderr, ExitCode: out.Code}, nil
}

func seconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}

func containerState(rec state.Container) runtime.ContainerState {
	switch rec.Phase {
	case state.Created:
		return runtime.ContainerState_CONTAINER_CREATED
	case state.Running:
		return runtime.ContainerState_CONTAINER_RUNNING
	case state.Exited:
		return runtime.ContainerState_CONTAINER_EXITED
	}
	return runtime.ContainerState_CONTAINER_UNKNOWN
}

// image is what a container's image is called; the handler is not known to the kubelet here.
func image(rec state.Container) *runtime.ImageSpec {
	wanted := rec.Config.Value.GetImage()
	return &runtime.ImageSpec{Image: rec.ImageName, Annotations: wanted.GetAnnotations(), UserSpecifiedImage: wanted.GetUserSpecifiedImage()}
}

func containerItem(rec state.Container) *runtime.Container {
	config := rec.Config.Value
	return &runtime.Container{
		Id: rec.ID, PodSandboxId: rec.SandboxID, Metadata: config.GetMetadata(), Image: image(rec),
		ImageRef: rec.ImageID, ImageId: rec.ImageID, State: containerState(rec), CreatedAt: rec.CreatedAt.UnixNano(),
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
	}
}

func containerStatus(rec state.Container) *runtime.ContainerStatus {
	config := rec.Config.Value
	s := &runtime.ContainerStatus{
		Id: rec.ID, Metadata: config.GetMetadata(), State: containerState(rec), CreatedAt: rec.CreatedAt.UnixNano(),
		StartedAt: nanos(rec.StartedAt), FinishedAt: nanos(rec.FinishedAt), ExitCode: rec.ExitCode,
		Reason: rec.Reason, Message: rec.Message,
		Image: image(rec), ImageRef: rec.ImageRef, ImageId: rec.ImageID,
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), Mounts: mounts(rec),
		LogPath: rec.LogPath, StopSignal: container.Signal(rec.StopSignal),
		User: &runtime.ContainerUser{Linux: &runtime.LinuxContainerUser{Uid: int64(rec.User.UID), Gid: int64(rec.User.GID)}},
	}
	for _, g := range rec.User.Groups {
		s.User.Linux.SupplementalGroups = append(s.User.Linux.SupplementalGroups, int64(g))
	}
	if rec.Resources.Value != nil {
		s.Resources = &runtime.ContainerResources{Linux: rec.Resources.Value}
	}
	return s
}

// mounts are those that were asked for. An image among them is named by its id: by that the kubelet
// knows that the image is in use.
func mounts(rec state.Container) []*runtime.Mount {
	all := slices.Clone(rec.Config.Value.GetMounts())
	for _, v := range rec.ImageVolumes {
		if v.Mount >= len(all) {
			continue // a damaged record
		}
		m := proto.Clone(all[v.Mount]).(*runtime.Mount)
		m.Image = cmp.Or(m.Image, &runtime.ImageSpec{})
		m.Image.Image, m.Image.ImageRef = v.ImageID, v.ImageRef
		all[v.Mount] = m
	}
	return all
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
