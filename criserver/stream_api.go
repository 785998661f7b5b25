package criserver

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streamAPI answers the requests that this server does not serve: each says what to use instead.
type streamAPI struct{ unanswered }

// unanswered is there so that a newer CRI can be compiled against.
type unanswered struct {
	runtime.UnimplementedRuntimeServiceServer
}

func refused(what string) error { return fmt.Errorf("%s: %w", what, errdefs.ErrNotImplemented) }

func (streamAPI) CheckpointContainer(context.Context, *runtime.CheckpointContainerRequest) (*runtime.CheckpointContainerResponse, error) {
	return nil, refused("sunaba cannot checkpoint containers")
}

func (streamAPI) CheckpointPod(context.Context, *runtime.CheckpointPodRequest) (*runtime.CheckpointPodResponse, error) {
	return nil, refused("sunaba cannot checkpoint pods")
}

func (streamAPI) RestorePod(context.Context, *runtime.RestorePodRequest) (*runtime.RestorePodResponse, error) {
	return nil, refused("sunaba cannot restore pods from checkpoints")
}
