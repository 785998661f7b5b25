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
	return opened(a, "exec in", &r.ContainerId, func() (*runtime.ExecResponse, error) { return a.streams.Exec(r) })
}

func (a *sessionAPI) Attach(_ context.Context, r *runtime.AttachRequest) (*runtime.AttachResponse, error) {
	return opened(a, "attach to", &r.ContainerId, func() (*runtime.AttachResponse, error) { return a.streams.Attach(r) })
}

// opened opens a stream of a container, whose id becomes a full one first.
func opened[A any](a *sessionAPI, doing string, id *string, open func() (*A, error)) (*A, error) {
	rec, err := a.sessions.Running(*id)
	if err != nil {
		return nil, err
	}
	*id = rec.ID
	resp, err := open()
	if err != nil {
		return nil, fmt.Errorf("%s container %q: %w", doing, rec.Name(), err)
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
