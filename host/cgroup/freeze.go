package cgroup

import (
	"strings"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Freeze stops every process of the group until Thaw.
func (g *Group) Freeze() error { return setFreezer(g, "FROZEN", "1") }

// Thaw lets the processes of a frozen group continue.
func (g *Group) Thaw() error { return setFreezer(g, "THAWED", "0") }

// Frozen says whether the processes are stopped, or are being stopped.
func (g *Group) Frozen() bool {
	if g.Unified() {
		frozen, _ := kernelfile.ReadRecord(g.File("", "cgroup.freeze"))
		return strings.TrimSpace(frozen) == "1"
	}
	state, err := kernelfile.ReadRecord(g.File("freezer", "freezer.state"))
	return err == nil && strings.TrimSpace(state) != "THAWED"
}

func setFreezer(g *Group, v1, v2 string) error {
	if g.Unified() {
		return write(g.File("", "cgroup.freeze"), v2)
	}
	return write(g.File("freezer", "freezer.state"), v1)
}
