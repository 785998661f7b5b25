// Package check compares a server's records with what is on the machine: processes, mounts, pinned
// namespaces, addresses and rules of the network, cgroups, root filesystems, compiled modules, and
// files in the server's folders.
//
// A check takes no lock and changes nothing, so a server may run meanwhile. Every part of a pod is
// made after its record and removed before it, so the records are read before and after the machine
// is looked at. A fault is reported only if it is still found after a few more looks.
package check

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/host/clock"
)

// Options say what is checked.
type Options struct {
	Root, State string // the server's folders, without symbolic links
	Cgroups     *cgroup.Manager
	Network     network.Options
	BootID      string
	Modules     Modules // nil: they are not looked at
	// Orphan says of a pod, by its uid and annotations, whether the command that ran it was killed.
	Orphan func(uid string, annotations map[string]string) (bool, error)
	// Served says that a server has the folders open.
	Served bool
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Subject string // what it is about: "pod ID (namespace/name)"
	What    string // what is wrong
	Do      string // what to do about it
	remove  func(context.Context) error
}

// key is what a finding has in common with the same one of another look: numbers of pods, and lists
// of processes, may be others by then.
func (f Finding) key() string {
	return f.Subject + "\x00" + strings.Map(func(r rune) rune {
		if r == ' ' || r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, f.What)
}

// Remove takes away what the finding is about, if nothing owns it; done is false for a finding that
// this is no remedy for. No server may have the folders open.
func (f Finding) Remove(ctx context.Context) (done bool, err error) {
	if f.remove == nil {
		return false, nil
	}
	return true, f.remove(ctx)
}

// Result is what a check came to.
type Result struct {
	Findings         []Finding
	Pods, Containers int // on record
}

// looks is how often something must look wrong to be a finding, and pause the time between two
// looks; a server that has the folders open may be cleaning up, and gets more.
const (
	looks = 4
	pause = 400 * time.Millisecond
)

// Run checks.
//
// # Errors
//
// What kept it from looking: a result is then not complete.
func Run(ctx context.Context, o Options) (Result, error) {
	result, err := look(ctx, o)
	for n := 1; n < looks && err == nil && len(result.Findings) > 0; n++ {
		rest := pause
		if o.Served {
			rest <<= n
		}
		if err := clock.Sleep(ctx, rest); err != nil {
			return result, err
		}
		var again Result
		if again, err = look(ctx, o); err != nil {
			break
		}
		before := map[string]bool{}
		for _, f := range result.Findings {
			before[f.key()] = true
		}
		again.Findings = slices.DeleteFunc(again.Findings, func(f Finding) bool { return !before[f.key()] })
		result = again
	}
	return result, err
}

// look looks once.
func look(ctx context.Context, o Options) (Result, error) {
	before, err := readRecords(o)
	if err != nil {
		return Result{}, err
	}
	seen, err := survey(ctx, o)
	if err != nil {
		return Result{}, err
	}
	after, err := readRecords(o)
	if err != nil {
		return Result{}, err
	}
	j := &judge{o: o, seen: seen, records: after, known: before.ids()}
	for id := range after.ids() {
		j.known[id] = true
	}
	j.files()
	parts := []func(){j.sandboxes, j.containers, j.folders, j.processes, j.shims, j.mounts, j.cgroups, j.network, j.roots, j.modules}
	if len(after.sandboxes.Newer)+len(after.containers.Newer) > 0 {
		parts = nil // what they own is not known
	}
	for _, part := range parts {
		part()
	}
	slices.SortFunc(j.findings, func(a, b Finding) int { return strings.Compare(a.key(), b.key()) })
	j.findings = slices.CompactFunc(j.findings, func(a, b Finding) bool { return a.key() == b.key() })
	return Result{Findings: j.findings, Pods: len(after.sandboxes.Records), Containers: len(after.containers.Records)}, nil
}
