package podagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/agent"
)

// Cgroups limit the memory of all pods together: a *cgroup.Manager.
type Cgroups interface{ LimitOwn(memory uint64) error }

// ReserveMemory limits all pods of the server to an amount of memory, in bytes (RE7). 0 takes away
// the limit that an earlier call set in this boot, and only that. state is the server's folder of
// what does not outlive a reboot.
func ReserveMemory(cgroups Cgroups, state string, memory uint64) error {
	mark := filepath.Join(state, "pods", "memory-limit")
	if memory > 0 {
		// The mark comes first: a limit without one would stay.
		if err := durable.Write(mark, []byte(strconv.FormatUint(memory, 10)+"\n"), 0o600); err != nil {
			return fmt.Errorf("note memory limit of all pods: %w", err)
		}
		return cgroups.LimitOwn(memory)
	}
	if _, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := cgroups.LimitOwn(0); err != nil {
		return err
	}
	if err := os.Remove(mark); err != nil {
		return fmt.Errorf("forget memory limit of all pods: %w", err)
	}
	return nil
}

// enforce limits all pods of the server to an amount of memory, in bytes, and returns the node's
// event about it, as a kubelet's; without a limit it records no event.
func enforce(o Options, memory uint64) []agent.NodeEvent {
	err := ReserveMemory(o.Cgroups, o.State, memory)
	if err != nil {
		o.Logger.Error("failed to limit the memory of all pods to what is not reserved", "error", err)
		return []agent.NodeEvent{{
			Type: corev1.EventTypeWarning, Reason: "FailedNodeAllocatableEnforcement",
			Message: `Failed to update Node Allocatable Limits ["sunaba"]: ` + errtext.Of(err),
		}}
	}
	if memory == 0 {
		return nil
	}
	return []agent.NodeEvent{{Type: corev1.EventTypeNormal, Reason: "NodeAllocatableEnforced", Message: "Updated Node Allocatable limit across pods"}}
}
