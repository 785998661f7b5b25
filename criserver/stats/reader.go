// Package stats measures pods: what a container or a pod uses, and what a pod costs beyond its
// containers' own work, from its processes.
//
// Everything is a plain read of a few small files; nothing is collected in the background.
package stats

import (
	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/cgroup/usage"
)

// Reader reads what cgroups use, and what the processes in them hold.
type Reader struct {
	*usage.Reader
	mounts *cgroup.Mounts
}

// NewReader returns a reader of a machine's cgroups.
func NewReader(m *cgroup.Mounts) *Reader { return &Reader{Reader: usage.NewReader(m), mounts: m} }
