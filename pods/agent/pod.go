package agent

import (
	"container/heap"
	"context"
	"time"

	"github.com/sunaba-project/sunaba/pods/agent/observe"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/resize"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// pod is one pod of the agent. It is owned by the loop. The Pod in its record is never changed in
// place: workers and views hold it.
type pod struct {
	rec  *records.Record
	seen *observe.Pod

	results []cycle.Result
	// changed says that something that failures wait for has changed since the last step; volumes
	// that the volumes are set up in this run.
	changed, volumes bool
	// cancel are the running actions by subject.
	cancel map[string]context.CancelFunc
	// saving says that the record is being written, or the pod's last traces removed: no step is
	// made then. again asks for one afterwards. stuck says that the record could not be written yet.
	saving, again, stuck bool
	// must says that the record was changed outside of Next so that it is written before anything
	// is done; fresh that the pod was not judged yet.
	must, fresh bool
	// noteAt is when the record is to be written without durability; zero for not at all. noted is
	// what was written last.
	noteAt, notedAt time.Time
	// saveAt is when the record, which could not be written, is written again.
	saveAt time.Time
	// holding is what holds said after the last step.
	holding bool
	// mountDelay is the last pause after a failure of the volumes.
	mountDelay time.Duration
	resize     resize.State

	limited limited

	decision cycle.Decision
	probed   []cycle.ProbeSet

	due   time.Time // of the next step; zero for none
	index int       // in the heap, -1 outside
}

func newPod(rec *records.Record) *pod {
	return &pod{rec: rec, seen: observe.New(), cancel: map[string]context.CancelFunc{}, index: -1}
}

func (p *pod) uid() string { return p.rec.UID() }

func (p *pod) key() manifest.Key {
	return manifest.Key{Kind: manifest.KindPod, Namespace: p.rec.Pod.Namespace, Name: p.rec.Pod.Name}
}

// own makes the record's Pod one that nobody else holds, before it is changed in place.
func (p *pod) own() { p.rec.Pod = p.rec.Pod.DeepCopy() }

// holds says whether the pod holds resources of the node: it is admitted and something of it may
// run.
func (p *pod) holds() bool {
	return p.rec.Pending == nil && (p.rec.Final == nil || p.seen.Live())
}

// schedule is a heap of pods by the time of their next step.
type schedule []*pod

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	p := x.(*pod)
	p.index = len(*s)
	*s = append(*s, p)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	old := *s
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	p.index = -1
	return p
}

// set gives a pod its next time; the zero time is none.
func (s *schedule) set(p *pod, at time.Time) {
	p.due = at
	switch {
	case at.IsZero() && p.index >= 0:
		heap.Remove(s, p.index)
	case at.IsZero():
	case p.index >= 0:
		heap.Fix(s, p.index)
	default:
		heap.Push(s, p)
	}
}
