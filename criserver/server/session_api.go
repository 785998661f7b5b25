package server

import (
	"context"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/criserver/session/stream"
)

// sessionAPI answers the requests whose answer is where to connect.
type sessionAPI struct {
	sandboxes *sandbox.Manager
	sessions  *session.Manager
	streams   *stream.Server
}

func (a *sessionAPI) Exec(_ context.Context, r *runtime.ExecRequest) (*runtime.ExecResponse, error) {
	id, err := a.sessions.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.ContainerId = id
	return a.streams.Exec(r)
}

func (a *sessionAPI) Attach(_ context.Context, r *runtime.AttachRequest) (*runtime.AttachResponse, error) {
	id, err := a.sessions.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.ContainerId = id
	return a.streams.Attach(r)
}

func (a *sessionAPI) PortForward(_ context.Context, r *runtime.PortForwardRequest) (*runtime.PortForwardResponse, error) {
	id, _, err := a.sandboxes.NetNS(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	r.PodSandboxId = id
	return a.streams.PortForward(r)
}
