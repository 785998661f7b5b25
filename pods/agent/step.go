package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/pace"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/probes"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// Pauses after a failure to set up volumes (VO1).
const (
	firstMountPause   = 500 * time.Millisecond
	longestMountPause = 2*time.Minute + 2*time.Second
)

// leastPause is the least time between two steps of a pod about which nothing happened.
const leastPause = 10 * time.Millisecond

// stepper makes the steps of pods: it asks cycle.Next, has the actions executed and takes in how
// they ended.
type stepper struct{ *loop }

// touch makes a step of a pod about which something has changed.
func (l *stepper) touch(uid string) {
	if p := l.pods[uid]; p != nil {
		l.step(p)
	}
}

// step asks what is to be done with a pod and has it done.
func (l *stepper) step(p *pod) {
	if !l.listed || !l.wanted {
		return
	}
	if p.saving {
		p.again = true
		if p.stuck {
			l.preview(p)
		}
		return
	}
	now := l.o.now()
	p.again = false
	o := l.observed(p)
	p.results, p.changed = nil, false
	p.decision = cycle.Next(&p.rec.Record, o, now, l.o.Settings)
	changed, err := l.users.Change(p.rec, p.decision.Actions)
	p.must, p.noUsers = p.must || changed, err
	if held := p.holding; held != p.holds() {
		p.holding = !held
		l.freed = l.freed || held
	}
	for _, subject := range p.decision.Cancel {
		if cancel := p.cancel[subject]; cancel != nil {
			cancel()
		}
	}
	for _, e := range p.decision.Events {
		l.event(p.rec.Pod, e.Container, e.Type, e.Reason, e.Message)
	}
	l.probe(p)
	if p.seen.Live() {
		l.keeper.Runs()
	}
	l.evictor.seen(p)
	if p.decision.Over {
		l.records.remove(p)
		return
	}
	switch {
	case p.decision.Save || p.must:
		// What is ordered is on record, and a sandbox is stopped when nothing runs in it.
		deleted := p.rec.Deletion != nil && !p.must
		l.begin(p, l.records.save(p), func(a cycle.Action) bool {
			return a.Verb == cycle.StartContainer || deleted && a.Verb == cycle.StopSandbox
		})
	case p.decision.Dirty && p.noteAt.IsZero():
		p.noteAt = now
		if next := p.notedAt.Add(noteEvery); next.After(now) {
			p.noteAt = next
		}
	}
	if !p.saving {
		l.saved(p)
	}
}

// observed is what is known of a pod now.
func (l *stepper) observed(p *pod) cycle.Observed {
	o := cycle.Observed{BootID: l.o.BootID, Results: p.results, Changed: p.changed, Volumes: p.volumes}
	l.read(p)
	o.Sandboxes, o.Containers = p.seen.Lists(l.prober.Results)
	return o
}

// preview shows the status of a pod that makes no step, since its record cannot be written.
func (l *stepper) preview(p *pod) {
	rec, err := records.Copy(p.rec)
	if err != nil {
		l.o.Logger.Error("failed to show pod", "pod", p.uid(), "error", err)
		return
	}
	status := cycle.Next(&rec.Record, l.observed(p), l.o.now(), l.o.Settings).Status
	for _, shown := range l.views.Pods() {
		if shown.UID == p.rec.Pod.UID {
			keepCounts(&shown.Status, &status)
		}
	}
	l.showAs(p, status, "room for its record", time.Time{})
}

// keepCounts keeps the counts of restarts that were shown: a restart that is not on record may
// never happen.
func keepCounts(shown, now *corev1.PodStatus) {
	for _, lists := range [][2][]corev1.ContainerStatus{
		{shown.InitContainerStatuses, now.InitContainerStatuses}, {shown.ContainerStatuses, now.ContainerStatuses},
	} {
		for _, was := range lists[0] {
			for i := range lists[1] {
				if c := &lists[1][i]; c.Name == was.Name {
					c.RestartCount = min(c.RestartCount, was.RestartCount)
				}
			}
		}
	}
}

// saved goes on with a step after its record is on the disk: the actions begin, and the status is
// shown.
func (l *stepper) saved(p *pod) {
	now := l.o.now()
	l.begin(p, nil, func(cycle.Action) bool { return true })
	l.resizes.applyResize(p)
	if !p.noteAt.IsZero() && !p.noteAt.After(now) {
		l.records.note(p)
	}
	l.show(p)
	next := pace.Earliest(p.decision.Wake, p.noteAt, p.saveAt, p.resize.Retry)
	if soonest := now.Add(leastPause); !next.IsZero() && next.Before(soonest) {
		next = soonest // nothing that is due already may turn the loop without end
	}
	l.schedule.Set(p, next)
	switch {
	case p.again && p.rec.Pending != nil && p.rec.Deletion == nil:
		p.again, l.freed = false, true
	case p.again:
		l.step(p)
	}
	if p.resize.Again && !p.saving {
		l.resizes.tryAll(l.admission.node())
	}
}

// begin executes actions of the last decision. recorded is closed when the pod's record is written,
// nil if it is.
func (l *stepper) begin(p *pod, recorded <-chan struct{}, now func(cycle.Action) bool) {
	var later []cycle.Action
	for _, a := range p.decision.Actions {
		if now(a) {
			l.execute(p, a, recorded)
		} else {
			later = append(later, a)
		}
	}
	p.decision.Actions = later
}

// execute executes an action in a worker, whose result comes back to the loop.
func (l *stepper) execute(p *pod, a cycle.Action, recorded <-chan struct{}) {
	ctx, cancel := context.WithCancel(l.ctx)
	p.cancel[a.Subject] = cancel
	j := l.job(p, a)
	j.Recorded = recorded
	if a.Verb == cycle.RunSandbox {
		j.Lacks = p.noUsers
	}
	l.work.Go(func() {
		done := l.worker.Do(ctx, j)
		done.Cancelled = ctx.Err() != nil
		cancel()
		l.post(func() { l.done(p, done) })
	})
}

// done takes in the end of an action.
func (l *stepper) done(p *pod, d worker.Done) {
	delete(p.cancel, d.Subject)
	now := l.o.now()
	for _, s := range d.Statuses {
		p.seen.TakeAll(d.Asked, s.GetStatus(), s.GetContainersStatuses(), now)
	}
	for _, id := range d.Removed {
		p.seen.Remove(id, now)
		l.users.Unsee(id) // others may want its user ids before its event comes
	}
	l.release(p)
	switch {
	case d.Verb == cycle.SetUpVolumes && d.Reason.Reason == "":
		p.volumes, p.mountDelay = true, 0
	case d.Verb == cycle.SetUpVolumes && !d.Wait:
		p.mountDelay = min(max(2*p.mountDelay, firstMountPause), longestMountPause)
		d.Delay = p.mountDelay
	}
	if (d.Verb == cycle.RunPreStop || d.Verb == cycle.RunPostStart) && d.Reason.Reason != "" { // events do not say why
		l.o.Logger.Warn("failed to run hook", "pod", p.uid(), "container", d.Container, "hook", d.Verb, "error", d.Message)
	}
	p.results = append(p.results, d.Result)
	if l.pods[p.uid()] == p {
		l.step(p)
	}
}

// input is what translations need to know of a pod.
func (l *stepper) input(p *pod, attempt uint32) translate.Input {
	given := false
	if e, found := l.o.Desired.Get(p.key()); found {
		given = explicit(e)
	}
	in := translate.Input{
		Pod: p.rec.Pod, Node: l.o.Node, Objects: l.o.Desired, Handler: p.rec.Handler, Attempt: attempt, IPs: p.rec.IPs,
		LogDirectory: l.o.Logs, Mark: l.mark, Run: l.o.RunMark != "", UserNamespace: p.rec.UserNamespace, DNSPolicyGiven: given,
	}
	if s := p.seen.Newest(); s != nil && len(s.IPs) > 0 {
		in.IPs = s.IPs
	}
	return in
}

// explicit says whether a manifest names the dnsPolicy itself.
func explicit(e desired.Entry) bool {
	return !slices.Contains(e.Defaulted, "spec.dnsPolicy")
}

// job makes one of an action, on the loop.
func (l *stepper) job(p *pod, a cycle.Action) worker.Job {
	attempt := p.rec.Sandbox
	if a.Verb == cycle.RunSandbox {
		attempt = a.Attempt
	}
	j := worker.Job{Action: a, Input: l.input(p, attempt), Asked: p.seen.Turn}
	switch a.Verb {
	case cycle.RemoveSandbox:
		j.Logs = map[string]string{}
		for id, c := range p.seen.Containers {
			if c.SandboxID == a.ID {
				j.Logs[id] = c.LogPath
			}
		}
	case cycle.RemoveContainer:
		if c := p.seen.Containers[a.ID]; c != nil {
			j.SandboxID, j.Logs = c.SandboxID, map[string]string{a.ID: c.LogPath}
		}
	case cycle.StopContainer:
		if c := p.seen.Containers[a.ID]; c != nil {
			j.SandboxID = c.SandboxID
		}
	case cycle.RunPostStart, cycle.RunPreStop:
		j.Ended = p.seen.Ended(a.ID)
	}
	return j
}

// probe tells the prober which probes of a pod run now.
func (l *stepper) probe(p *pod) {
	if len(p.decision.Probes) == 0 && len(p.probed) == 0 {
		return
	}
	p.probed = p.decision.Probes
	l.prober.Set(p.uid(), p.rec.Pod, worker.PodIP(l.input(p, p.rec.Sandbox)), p.probed)
}

// probeFailed records the event of a probe that failed.
func (l *stepper) probeFailed(e probes.Event) {
	l.post(func() {
		if p := l.pods[e.UID]; p != nil {
			l.event(p.rec.Pod, e.Container, corev1.EventTypeWarning, e.Reason, e.Message)
		}
	})
}

// show makes the view of a pod of its record and what was decided last.
func (l *stepper) show(p *pod) {
	next, until := p.decision.Waiting, p.decision.Wake
	if len(p.resize.Wanted) > 0 {
		next = strings.TrimPrefix(next+"; room for new resources", "; ")
	}
	if back := l.evictor.back(p); !back.IsZero() {
		next, until = "a new pod after its eviction", back
	}
	l.showAs(p, p.decision.Status, next, until)
}

// showAs makes the view of a pod with a status, and what it waits for.
func (l *stepper) showAs(p *pod, status corev1.PodStatus, next string, until time.Time) {
	shown := *p.rec.Pod
	shown.TypeMeta.APIVersion, shown.TypeMeta.Kind = "v1", "Pod"
	shown.Status = status
	for _, c := range []*corev1.PodCondition{p.resize.Pending, p.resize.Progress} {
		if c != nil {
			shown.Status.Conditions = append(shown.Status.Conditions[:len(shown.Status.Conditions):len(shown.Status.Conditions)], *c)
		}
	}
	if l.views.Put(&shown, next, until) {
		l.summarize()
	}
}

// summarize tells the number of pods if it changed.
func (l *stepper) summarize() {
	if text, changed := l.views.Summary(); changed && l.o.Changed != nil {
		l.o.Changed(text)
	}
}

// release ends what mounts hold of the containers of a pod that have ended.
func (l *stepper) release(p *pod) {
	l.worker.Ended(p.uid(), func(id string) bool {
		c := p.seen.Containers[id]
		return p.seen.Gone(id) || c != nil && c.State == cycle.StateExited
	})
}
