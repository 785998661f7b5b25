package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/probes"
)

// healthTime is how long the loop may take for one turn.
const healthTime = 5 * time.Second

// Pods are all pods with their computed status, sorted by namespace and name.
func (a *Agent) Pods() []*corev1.Pod { return a.l.views.Pods() }

// Pod is one pod by its name.
func (a *Agent) Pod(namespace, name string) (*corev1.Pod, bool) {
	for _, p := range a.Pods() {
		if p.Namespace == namespace && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

// Next is what the agent waits for with a pod, and until when at the latest; "" for nothing, the
// zero time for no end.
func (a *Agent) Next(uid types.UID) (text string, until time.Time) { return a.l.views.Next(uid) }

// Events are the recorded events, from the oldest to the newest.
func (a *Agent) Events() []*corev1.Event { return a.l.events.List(a.l.o.now()) }

// Watch is closed when a pod, an event, an object or file of Desired, the health or a condition of
// the node, or what Signal was called for has changed since the call.
func (a *Agent) Watch() <-chan struct{} { return a.l.views.Watch() }

// Shown is closed once Run has judged all pods that are on record: before, Pods lacks some of them.
func (a *Agent) Shown() <-chan struct{} { return a.l.views.Whole() }

// Signal wakes those who watch, for what is shown beside the agent's own.
func (a *Agent) Signal() { a.l.views.Signal() }

// Summary is the state in words: "6 pods, 5 ready".
func (a *Agent) Summary() string {
	text, _ := a.l.views.Summary()
	return text
}

// Reload judges waiting pods anew, and retries what failed: RuntimeClasses, handlers or the network
// may have changed. labels are those of the node from now on (AD4), unless they are nil.
func (a *Agent) Reload(ctx context.Context, labels map[string]string) error {
	a.Signal()
	return a.l.ask(ctx, func() error {
		if labels != nil {
			a.l.o.Labels = labels
		}
		for _, p := range a.l.ordered() {
			p.changed = true
		}
		a.l.plan.sync()
		for _, p := range a.l.ordered() {
			if p.changed && a.l.listed && a.l.wanted { // what failed is retried
				a.l.steps.step(p)
			}
		}
		return nil
	})
}

// Delete orders the deletion of an applied pod and does not wait for its end. The grace, in
// seconds, takes the place of the pod's own if it is not negative; a second order can only shorten
// it, and is on record when Delete returns. uid, if it is not empty, must be the pod's.
//
// # Errors
//
// ErrNotFound if there is no such pod; ErrFailedPrecondition if it stands in a file or has another
// UID; those of onRecord.
func (a *Agent) Delete(ctx context.Context, namespace, name string, uid types.UID, grace int64) error {
	l, key := a.l, manifest.Key{Kind: manifest.KindPod, Namespace: namespace, Name: name}
	wanted, ordered := false, ""
	err := l.ask(ctx, func() error {
		p := l.find(key)
		_, wanted = l.o.Desired.Get(key)
		if p != nil {
			ordered = p.uid()
		}
		switch {
		case p == nil && !wanted:
			return fmt.Errorf("delete %s: there is none: %w", key, errdefs.ErrNotFound)
		case p != nil && uid != "" && p.rec.Pod.UID != uid:
			return fmt.Errorf("delete %s: its UID is %s, not %s: %w", key, p.rec.Pod.UID, uid, errdefs.ErrFailedPrecondition)
		case grace < 0:
		case wanted, p.rec.Deletion == nil: // the object of the latter is gone, and sync was not told yet
			l.plan.graces[key] = grace
		default:
			l.plan.end(p, grace)
		}
		return nil
	})
	if err == nil && wanted {
		if err := l.o.Desired.Delete(key); err != nil { // its change reaches the loop as any other
			return errors.Join(err, l.ask(ctx, func() error { delete(l.plan.graces, key); return nil }))
		}
		err = l.ask(ctx, func() error { l.plan.sync(); return nil })
	}
	if err != nil || grace < 0 { // without one, that the object is gone is all that is to be known
		return err
	}
	return l.onRecord(ctx, fmt.Sprintf("delete %s: its grace period", key), ordered, true)
}

// onRecord waits until a pod's deletion or change is on record, where it outlives the agent.
//
// # Errors
//
// ErrUnavailable if the agent ends before or a record cannot be written for a while, as on a full
// disk: the order stands then. The context's.
func (l *loop) onRecord(ctx context.Context, what, uid string, deletion bool) error {
	short, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	for recorded := false; ; {
		err := l.ask(short, func() error {
			p := l.pods[uid]
			recorded = p == nil || !p.must && !p.saving && (p.rec.Deletion != nil || !deletion)
			return nil
		})
		if err == nil && recorded {
			return nil
		}
		if err != nil || !l.pause(2*time.Millisecond) {
			return fmt.Errorf("%s is not on record yet (is the disk full?): %w", what, cmp.Or[error](ctx.Err(), errdefs.ErrUnavailable))
		}
	}
}

// Applied waits until pods of which Desired has just heard are among Pods, so that who applied one
// can name it at once. It waits neither for pods of other nodes nor before the start is over, and
// for five seconds at most: the objects are wanted in any case.
func (a *Agent) Applied(ctx context.Context, pods []manifest.Key) {
	if len(pods) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	l := a.l
	err := l.ask(ctx, func() error { l.plan.sync(); return nil })
	for hidden := true; err == nil && hidden; {
		err = l.ask(ctx, func() error {
			hidden = false
			for _, p := range l.pods {
				hidden = hidden || slices.Contains(pods, p.key()) && !l.views.Has(p.rec.Pod.UID)
			}
			return nil
		})
		if hidden && !l.pause(5*time.Millisecond) {
			return
		}
	}
}

// DeleteAll ends all pods as Delete does, also those of files, and does not wait for their end.
// None is made until another agent runs, whatever is wanted: files and applied objects stay (B.10).
//
// # Errors
//
// The context's.
func (a *Agent) DeleteAll(ctx context.Context, grace int64) error {
	l := a.l
	return l.ask(ctx, func() error {
		l.withdrawn.Store(true)
		for _, p := range l.pods {
			if grace >= 0 {
				l.plan.graces[p.key()] = grace
			}
		}
		l.o.Logger.Info("all pods are deleted by request; none is made until the server is started again")
		l.nodeEvent(corev1.EventTypeNormal, "PodsWithdrawn", "All pods are deleted by request; none is made until the server is started again")
		l.plan.sync()
		return nil
	})
}

// Withdrawn says whether DeleteAll was called.
func (a *Agent) Withdrawn() bool { return a.l.withdrawn.Load() }

// Restart orders a restart of a pod's containers, or of one of them, in the same sandbox, and does
// not wait for it. The order is on record when Restart returns. Back-offs are over.
//
// # Errors
//
// ErrNotFound if there is no such pod or container; ErrFailedPrecondition if it is over or being
// stopped; those of onRecord.
func (a *Agent) Restart(ctx context.Context, namespace, name, container string) error {
	key := manifest.Key{Kind: manifest.KindPod, Namespace: namespace, Name: name}
	return a.l.order(ctx, key, "restart "+key.String(), func(p *pod) error {
		var names []string
		if container != "" {
			names = []string{container}
		}
		if err := p.rec.Restart(names, cycle.Reason{Reason: "Restart", Message: "Container will be restarted by request"}); err != nil {
			return err
		}
		a.l.images.Forget(p.rec.Pod.UID)
		p.changed = true
		return nil
	})
}

// order changes a pod, has its next step made, and waits until the change is on record.
func (l *loop) order(ctx context.Context, key manifest.Key, what string, change func(*pod) error) error {
	uid := ""
	err := l.ask(ctx, func() error {
		p := l.find(key)
		if p == nil {
			return fmt.Errorf("%s: there is none: %w", what, errdefs.ErrNotFound)
		}
		if err := change(p); err != nil {
			return err
		}
		uid, p.must = p.uid(), true
		l.steps.step(p)
		return nil
	})
	if err != nil {
		return err
	}
	return l.onRecord(ctx, what+": the order", uid, false)
}

// Debug adds an ephemeral container to a pod and starts it. It is on record when Debug returns.
//
// # Errors
//
// ErrNotFound if there is no such pod; ErrAlreadyExists for a name that is in use;
// ErrFailedPrecondition if the pod is over or being stopped; those of onRecord.
func (a *Agent) Debug(ctx context.Context, namespace, name string, c corev1.EphemeralContainer) error {
	key := manifest.Key{Kind: manifest.KindPod, Namespace: namespace, Name: name}
	return a.l.order(ctx, key, fmt.Sprintf("add container %q to %s", c.Name, key), func(p *pod) error {
		p.own()
		return p.rec.AddEphemeral(c)
	})
}

// Metrics writes how long pods took to start and how their probes ended, in the text format of Prometheus.
//
// # Errors
//
// ErrUnavailable if the loop does not turn; the writer's.
func (a *Agent) Metrics(w io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	var counts []probes.Count
	if err := a.l.ask(ctx, func() error { counts = a.l.prober.Counts(); return nil }); err != nil {
		return stuck()
	}
	return errors.Join(a.l.views.WriteStarts(w), probes.WriteMetrics(w, counts))
}

// Health is nil if the loop turns and the CRI server's events are followed.
//
// # Errors
//
// ErrUnavailable, saying which it is.
func (a *Agent) Health() error {
	if !a.l.views.Listening() {
		return fmt.Errorf("ask for health: the events of the CRI server are not followed: %w", errdefs.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	turns := func() error {
		if ctx.Err() != nil { // late: who was told otherwise looks again
			a.Signal()
		}
		return nil
	}
	if a.l.ask(ctx, turns) != nil {
		return stuck()
	}
	return nil
}

func stuck() error {
	return fmt.Errorf("ask for health: the loop of the agent did not turn for %s: %w", healthTime, errdefs.ErrUnavailable)
}

// ask has the loop call f and waits for its answer.
func (l *loop) ask(ctx context.Context, f func() error) error {
	answer := make(chan error, 1)
	select {
	case l.inbox <- func() { answer <- f() }:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// find is the pod of a name, nil without.
func (l *loop) find(key manifest.Key) *pod {
	for _, p := range l.pods {
		if p.key() == key {
			return p
		}
	}
	return nil
}

// seconds is a grace period as a duration; a negative one stays negative.
func seconds(grace int64) time.Duration {
	const longest = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(grace, longest)) * time.Second
}
