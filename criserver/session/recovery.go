package session

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Adopt ends what requests to a server that died had started in a sandbox's containers. The
// commands of ExecSync have lost their caller: they are killed. Those of clients that took part run
// on, as when a client leaves. Adopt is called before container.Manager.Adopt, which deletes the
// tasks of containers that have ended. shim is nil without one that answers.
func (m *Manager) Adopt(ctx context.Context, sb *sandbox.Sandbox, shim *client.Client) {
	if shim == nil {
		return
	}
	for _, rec := range m.containers.In(sb.ID) {
		// One that is Created on record may run: its server died before it wrote that.
		if rec.Phase != state.Created && rec.Phase != state.Running {
			continue
		}
		if err := durable.Remove("", sessionPipes(filepath.Join(sb.Dir, rec.ID))...); err != nil {
			m.log.Error("failed to remove pipes of dead requests", "container", rec.ID, "error", err)
		}
		d, err := shim.Details(ctx, rec.ID)
		if err != nil {
			continue // it has no task, or container.Manager.Adopt will say why the shim does not answer
		}
		for _, execID := range d.Execs {
			m.abandon(ctx, &execution{shim: shim, id: rec.ID, execID: execID})
		}
	}
}

// abandon kills a command that only the server that died waited for. Any other is told that its
// terminal was closed, if it has one, and deleted from the shim when it ends.
func (m *Manager) abandon(ctx context.Context, e *execution) {
	if strings.HasPrefix(e.execID, syncPrefix) {
		e.drop(ctx)
		return
	}
	if st, err := e.shim.State(ctx, e.id, e.execID); err == nil && st.Terminal {
		e.hangUp(ctx)
	}
	go func() {
		if _, err := e.shim.Wait(m.ctx, e.id, e.execID); err == nil {
			e.drop(m.ctx)
		}
	}()
}

// sessionPipes are the FIFOs in a bundle that were made for requests.
func sessionPipes(bundle string) []string {
	var pipes []string
	for _, prefix := range []string{syncPrefix, streamPrefix, attachPrefix} {
		found, _ := filepath.Glob(filepath.Join(bundle, prefix+"*-std*")) // the pattern is right
		pipes = append(pipes, found...)
	}
	return pipes
}
