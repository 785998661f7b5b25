package cgroup

import (
	"path/filepath"
	"sync"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Ledger knows of which groups the kernel has killed processes for lack of memory, also when a
// group is deleted: systemd removes a scope as soon as its last process has ended. The group above,
// a pod's, counts the kills of all below it (version 2); those that no other of its groups had were
// of the deleted one.
type Ledger struct {
	mu   sync.Mutex
	pods map[string]*account // by the directory of the group above
}

// account is what is known of one group above.
type account struct {
	before uint64 // kills that were before its first group was opened
	open   map[*Kills]bool
	closed uint64 // kills of groups whose books are closed
}

// Kills are those of one group.
type Kills struct {
	ledger *Ledger
	group  *Group
	above  string // directory of the group above, "" where that does not count those below
	before uint64
	known  uint64 // at the last look, those before among them
}

// Open opens the books of a group, which need not exist yet; the one above it has to. They are to
// be closed.
func (l *Ledger) Open(g *Group) *Kills {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := &Kills{ledger: l, group: g}
	k.look()
	k.before = k.known
	if !g.Unified() {
		return k
	}
	k.above = filepath.Dir(g.Dir(""))
	a := l.pods[k.above]
	if a == nil {
		if l.pods == nil {
			l.pods = map[string]*account{}
		}
		all, _ := oomKillsIn(filepath.Join(k.above, "memory.events"))
		a = &account{before: all - min(k.known, all), open: map[*Kills]bool{}}
		l.pods[k.above] = a
	}
	a.open[k] = true
	return k
}

// Reopen opens the books of a group that was made for what is in it, after a process that had them
// open has died: all kills in it count.
func (l *Ledger) Reopen(g *Group) *Kills {
	k := l.Open(g)
	k.before = 0
	return k
}

// Group is the group that the books are about.
func (k *Kills) Group() *Group { return k.group }

// look reads the group's own count and says whether it is there.
func (k *Kills) look() bool {
	n, there := oomKills(k.group)
	if there {
		k.known = n
	}
	return there
}

// Close closes the books when the group's init has ended, and says whether there was a kill since
// they were opened. It may be called again, for the same answer.
func (k *Kills) Close() bool {
	k.ledger.mu.Lock()
	defer k.ledger.mu.Unlock()
	a := k.ledger.pods[k.above]
	if a == nil || !a.open[k] {
		if !k.group.Unified() {
			k.look()
		}
		return k.known > k.before
	}
	if !k.look() {
		k.known += a.unclaimed(k.above)
	}
	delete(a.open, k)
	a.closed += k.known
	if len(a.open) == 0 {
		delete(k.ledger.pods, k.above)
	}
	return k.known > k.before
}

// unclaimed are the kills that the group above counts and no group has.
func (a *account) unclaimed(above string) uint64 {
	all, _ := oomKillsIn(filepath.Join(above, "memory.events"))
	claimed := a.before + a.closed
	for k := range a.open {
		k.look()
		claimed += k.known
	}
	return all - min(claimed, all)
}

// oomKills also says whether the group is there and counts.
func oomKills(g *Group) (n uint64, there bool) {
	if g.Unified() {
		return oomKillsIn(g.File("", "memory.events"))
	}
	return oomKillsIn(g.File("memory", "memory.oom_control"))
}

func oomKillsIn(file string) (n uint64, there bool) {
	table, _ := kernelfile.AppendRecord(nil, file)
	return Table(table).Find("oom_kill")
}
