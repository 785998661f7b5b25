package sandbox

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// NetNS returns the full id of a ready sandbox and the path of its network namespace, "" if it has the host's.
//
// # Errors
//
// ErrNotFound; ErrFailedPrecondition if it is not ready.
func (m *Manager) NetNS(id string) (full, path string, err error) {
	rec, err := m.Get(id)
	if err != nil {
		return "", "", err
	}
	if rec.Phase != state.Ready {
		return "", "", fmt.Errorf("sandbox %q is not ready: %w", rec.ID, errdefs.ErrFailedPrecondition)
	}
	s, err := m.Sandbox(rec.ID)
	if err != nil {
		return "", "", err
	}
	return rec.ID, s.NetNS(rec.Config.Value), nil
}
