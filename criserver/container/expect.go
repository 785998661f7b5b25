package container

import (
	"context"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// aheadLimit is how long a shim may take to make a container ahead, with a module that it has to compile.
const aheadLimit = 2 * time.Minute

// expect has the shim make the container, in the background, just as Start will ask for it: clients start what they have
// created, and Start has little to wait for then. Nothing depends on it, and it is on no record: what the shim has made goes by
// itself when Start asks for something else, or does not come soon.
func (m *Manager) expect(ctx context.Context, c *Container, sb *sandbox.Sandbox, shim *client.Client, rec state.Container) {
	req, err := m.taskRequest(sb, rec)
	if err != nil {
		return // Start will say it
	}
	ahead := make(chan struct{})
	c.ahead = ahead
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aheadLimit)
	go func() {
		defer close(ahead)
		defer cancel()
		if err := shim.Expect(ctx, req); err != nil {
			m.o.Logger.Debug("shim did not make a container ahead", "container", rec.ID, "error", err)
		}
	}()
}

// unexpect takes back what the shim made ahead of a container that never ran, and its prewarmed process.
func (m *Manager) unexpect(ctx context.Context, c *Container, rec state.Container) {
	if !rec.StartedAt.IsZero() {
		return
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return
	}
	shim := sb.Shim()
	if shim == nil {
		return
	}
	for made := false; !made; {
		made = c.madeAhead()
		_, err := shim.Delete(ctx, rec.ID, "") // also ends the making
		if err != nil && !errdefs.IsNotFound(err) {
			m.o.Logger.Debug("shim did not take back what it made ahead", "container", rec.ID, "error", err)
		}
		if silent(ctx, err) {
			return
		}
		if !made { // the shim may not have heard of it yet
			select {
			case <-c.ahead:
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	m.vacate(ctx, shim, rec)
}

// madeAhead says that no request for the container is under way with which the shim would make it ahead.
func (c *Container) madeAhead() bool {
	select {
	case <-c.ahead:
		return true
	default:
		return c.ahead == nil
	}
}
