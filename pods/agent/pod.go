package agent

import (
	"context"
	"time"

	"github.com/sunaba-project/sunaba/pods/agent/observe"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/resize"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/queue"
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
	// noUsers is why the pod's next sandbox cannot have the pod's user ids, nor others.
	noUsers error

	limited limited

	decision cycle.Decision
	probed   []cycle.ProbeSet

	queue.Entry // for the next step
}

func newPod(rec *records.Record) *pod {
	return &pod{rec: rec, seen: observe.New(), cancel: map[string]context.CancelFunc{}}
}

func (p *pod) uid() string { return p.rec.UID() }

func (p *pod) key() manifest.Key {
	return manifest.Key{Kind: manifest.KindPod, Namespace: p.rec.Pod.Namespace, Name: p.rec.Pod.Name}
}

// own makes the record's Pod one that nobody else holds, before it is changed in place.
func (p *pod) own() { p.rec.Pod = p.rec.Pod.DeepCopy() }

// holds says whether the pod holds resources of the node: it is admitted, and something of it may
// run, or a sandbox of it, ready or not, is not stopped to the end and may have host ports still.
func (p *pod) holds() bool {
	ends := p.seen.Live()
	for id := range p.seen.Sandboxes {
		ends = ends || p.rec.Live.Stopped[id].IsZero()
	}
	return p.rec.Pending == nil && (p.rec.Final == nil || ends)
}
