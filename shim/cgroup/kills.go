package cgroup

import "path/filepath"

// Kills tells whether the kernel has killed processes of a group for lack of memory since KillsFromNow, also when the group is
// gone: systemd removes a scope when its last process has ended, at once.
type Kills struct {
	group      *Group
	own, above uint64 // kills before, in the group and in the one that it lies in
}

// KillsFromNow remembers how many there have been. The group need not exist yet, but the one above it has to.
func (g *Group) KillsFromNow() *Kills {
	k := &Kills{group: g}
	k.own, _ = g.oomKills()
	k.above, _ = g.oomKillsAbove()
	return k
}

// Any says whether there was a kill. Of a group that is gone it knows only by the group above, which counts the kills
// of all below it (version 2), those of a pod: that counts when the process asked about was ended by SIGKILL.
func (k *Kills) Any(sigkill bool) bool {
	if n, there := k.group.oomKills(); there {
		return n > k.own
	}
	if !sigkill {
		return false
	}
	n, there := k.group.oomKillsAbove()
	return there && n > k.above
}

// oomKills also says whether the group is there and counts.
func (g *Group) oomKills() (n uint64, there bool) {
	if g.unified {
		return oomKillsIn(filepath.Join(g.dirs[""], "memory.events"))
	}
	dir, ok := g.dirs["memory"]
	if !ok {
		return 0, false
	}
	return oomKillsIn(filepath.Join(dir, "memory.oom_control"))
}

func (g *Group) oomKillsAbove() (n uint64, there bool) {
	if !g.unified {
		return 0, false
	}
	return oomKillsIn(filepath.Join(filepath.Dir(g.dirs[""]), "memory.events"))
}

func oomKillsIn(file string) (n uint64, there bool) {
	n, there = keyed(file)["oom_kill"]
	return n, there
}
