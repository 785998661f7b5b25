package server

import (
	"context"
	"fmt"

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
	rec, err := a.sessions.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.ContainerId = rec.ID
	resp, err := a.streams.Exec(r)
	if err != nil {
		return nil, fmt.Errorf("exec in container %q: %w", rec.Name(), err)
	}
	return resp, nil
}

func (a *sessionAPI) Attach(_ context.Context, r *runtime.AttachRequest) (*runtime.AttachResponse, error) {
	rec, err := a.sessions.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.ContainerId = rec.ID
	resp, err := a.streams.Attach(r)
	if err != nil {
		return nil, fmt.Errorf("attach to container %q: %w", rec.Name(), err)
	}
	return resp, nil
}

func (a *sessionAPI) PortForward(_ context.Context, r *runtime.PortForwardRequest) (*runtime.PortForwardResponse, error) {
	id, _, err := a.sandboxes.NetNS(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	r.PodSandboxId = id
	return a.streams.PortForward(r)
}
