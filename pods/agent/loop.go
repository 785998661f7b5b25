package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/events"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/agent/images"
	"github.com/sunaba-project/sunaba/pods/agent/pace"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/resize"
	"github.com/sunaba-project/sunaba/pods/agent/tidy"
	"github.com/sunaba-project/sunaba/pods/agent/users"
	"github.com/sunaba-project/sunaba/pods/agent/verdicts"
	"github.com/sunaba-project/sunaba/pods/agent/views"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/imagegc"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/probes"
	"github.com/sunaba-project/sunaba/pods/queue"
)

const (
	// noteEvery is how often changes that may be lost are written at most (E.1).
	noteEvery = time.Second
	// retryWrite is the pause after a record could not be written.
	retryWrite = time.Second
	// queued is how many messages may wait for the loop.
	queued = 256
)

// loop is the goroutine that owns all pods. What it does with them is in the methods of its parts,
// each of which is about one subject; all are called on it, unless they say otherwise.
type loop struct {
	o      Options
	store  *records.Store
	mark   string
	pace   pace.Pace
	events *events.Store
	views  views.Views
	images *images.Manager
	worker *worker.Worker
	// garbage removes images that nothing needs; nil in the agent of a run.
	garbage *imagegc.Collector
	prober  *probes.Prober

	plan      *planner
	admission *admitter
	users     *users.Users
	steps     *stepper
	records   *recorder
	inputs    *refresher
	resizes   *resizer
	orphans   *orphans
	keeper    *tidy.Keeper
	evictor   *evictor
	ending    *terminator

	ctx   context.Context // of the workers
	work  sync.WaitGroup
	inbox chan func()

	pods     map[string]*pod   // by UID
	schedule queue.Queue[*pod] // by the time of the next step
	// listed says that the CRI server was asked once what runs, wanted that the objects are known.
	listed, wanted bool
	// shuttingDown says that the node is, for others than the loop.
	shuttingDown atomic.Bool
	// withdrawn says that no pod is wanted any more, whatever the objects say.
	withdrawn atomic.Bool
	// freed says that pods are to be judged anew: one ceased to hold resources, which others may wait
	// for, or has waited for its record.
	freed bool
	ready sync.Once
}

func newLoop(o Options, store *records.Store, ranges *identity.Ranges, mark string) (*loop, error) {
	l := &loop{o: o, store: store, mark: mark, pace: pace.Since(o.now()), inbox: make(chan func(), queued), pods: map[string]*pod{}}
	l.events = events.Open(o.EventsFile, o.Node.Name, o.now(), l.views.Signal)
	l.images = images.New(images.Options{
		Text: o.Text,
		CRI:  o.CRI, Parallel: o.ParallelPulls, Fallback: o.PullFallback, Unreachable: o.Unreachable, Secret: o.Desired.Secret, Now: o.now,
	})
	l.worker = worker.New(worker.Options{
		Text: o.Text, Tracer: o.Tracer,
		CRI: o.CRI, Volumes: o.Volumes, Images: l.images, Logs: o.Logs, Mark: mark, RecursiveReadOnly: o.Settings.RecursiveReadOnly,
		UserAgent: o.UserAgent, Tell: l.event, Now: o.now,
		Go: l.spawn,
	})
	if o.RunMark == "" { // the images are not a run's
		l.garbage = imagegc.New(imagegc.Options{
			CRI: o.CRI, Policy: o.ImageGC, Budget: o.ImageBudget, Named: l.namedImages, Alone: l.images.Alone,
			Tell:   func(reason, message string) { l.nodeEvent(corev1.EventTypeWarning, reason, message) },
			Logger: o.Logger, Now: o.now,
		})
		if l.o.Eviction.Reclaim == nil {
			l.o.Eviction.Reclaim = l.garbage.Reclaim
		}
	}
	l.plan = &planner{loop: l, told: map[string]bool{}, graces: map[manifest.Key]int64{}}
	l.admission, l.steps, l.records = &admitter{l}, &stepper{l}, &recorder{l}
	l.users = users.New(ranges, l.pace, o.now, o.Logger)
	l.inputs, l.resizes = &refresher{loop: l}, &resizer{l}
	l.orphans = &orphans{loop: l, ending: map[string]int{}, broken: map[string]bool{}}
	l.keeper = newKeeper(l)
	l.evictor = newEvictor(l)
	l.ending = &terminator{loop: l}
	return l, l.load()
}

// load reads the records of all pods.
func (l *loop) load() error {
	all, broken, err := l.store.Load()
	if err != nil {
		return err
	}
	for _, b := range broken {
		l.orphans.broken[b.UID] = true
		l.o.Logger.Error("failed to read pod record", "pod", b.UID, "moved", b.Path, "error", b.Err)
		l.nodeEvent(corev1.EventTypeWarning, "FailedSync", fmt.Sprintf("record of pod %s could not be read and was moved to %s: %v", b.UID, b.Path, b.Err))
	}
	for _, rec := range all {
		p := newPod(rec)
		p.resize = resize.Of(rec)
		l.pods[p.uid()] = p
		l.views.Expect(rec.Pod.UID)
		if err := l.users.Restore(rec); err != nil {
			return fmt.Errorf("open pods: %w", err)
		}
	}
	return nil
}

// run is Agent.Run.
func (l *loop) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.ctx = ctx
	l.prober = probes.New(probes.Options{
		Exec: l.worker.Exec, UserAgent: l.o.UserAgent, Logger: l.o.Logger,
		Failed: l.steps.probeFailed, Changed: func(uid string) { l.post(func() { l.steps.touch(uid) }) },
	})
	defer l.prober.Close()
	objects := make(chan error, 1)
	go func() { objects <- l.o.Desired.Run(ctx, l.objectsChanged) }()
	l.work.Go(func() { l.listObjects(ctx) })
	watch := &watcher{l}
	l.spawn(watch.run)
	if l.o.Stops != nil {
		l.spawn(watch.stops)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var failure error
	watching := true
	for ctx.Err() == nil {
		select {
		case f := <-l.inbox:
			f()
		case <-timer.C:
			l.wake()
		case failure = <-objects:
			watching = false
			cancel()
		case <-ctx.Done():
		}
		l.hear()
		if l.freed {
			l.freed = false
			l.plan.sync()
		}
		l.ending.turn()
		l.arm(timer)
	}
	l.drain()
	if watching {
		failure = <-objects
	}
	return failure
}

// hear takes what workers have to tell now, so that pods are judged once for many of them.
func (l *loop) hear() {
	for range 100 {
		select {
		case f := <-l.inbox:
			f()
		default:
			return
		}
	}
}

// objectsChanged tells of files, wakes those who watch, whatever kind of object it was, and has
// pods follow.
func (l *loop) objectsChanged() {
	verdicts.Record(l.events, l.o.Desired.Verdicts(), l.o.now())
	l.views.Signal()
	l.post(l.plan.sync)
}

// listObjects waits for the first listing of the folders. What the node has left is known before
// pods are admitted.
func (l *loop) listObjects(ctx context.Context) {
	readings := l.evictor.read()
	select {
	case <-l.o.Desired.Listed():
		l.post(func() { l.born(readings); l.wanted = true; l.start() })
	case <-ctx.Done():
	}
}

// drain waits for the workers when the loop has ended, and writes what may be lost.
func (l *loop) drain() {
	ended := make(chan struct{})
	go func() { l.work.Wait(); close(ended) }()
	for waiting := true; waiting; {
		select {
		case <-l.inbox: // nobody acts any more: the next start goes on from the records
		case <-ended:
			waiting = false
		}
	}
	for _, p := range l.pods {
		if !p.noteAt.IsZero() && !p.saving {
			l.records.note(p)
		}
	}
	if err := l.events.Flush(l.o.now()); err != nil {
		l.o.Logger.Error("failed to write events", "error", err)
	}
}

// spawn has a worker call f.
func (l *loop) spawn(f func(context.Context)) { l.work.Go(func() { f(l.ctx) }) }

// post has the loop call f. It may be called by any goroutine except the loop's own.
func (l *loop) post(f func()) {
	select {
	case l.inbox <- f:
	case <-l.ctx.Done():
	}
}

// start makes the first steps, when what is wanted and what runs are both known.
func (l *loop) start() {
	if !l.listed || !l.wanted {
		return
	}
	l.orphans.endOrphans()
	l.ending.resumeAll()
	l.plan.sync()
	for _, p := range l.ordered() {
		l.steps.step(p)
	}
	l.keeper.Start()
	if l.garbage != nil {
		l.spawn(l.garbage.Run)
	}
	l.evictor.start()
	l.ready.Do(func() {
		if l.o.Ready != nil {
			l.o.Ready()
		}
	})
}

// ordered are all pods in the order of their UIDs.
func (l *loop) ordered() []*pod {
	all := make([]*pod, 0, len(l.pods))
	for _, p := range l.pods {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pod) int {
		if a.uid() < b.uid() {
			return -1
		}
		return 1
	})
	return all
}

// wake makes the steps that are due.
func (l *loop) wake() {
	now := l.o.now()
	for p, ok := l.schedule.Take(now); ok; p, ok = l.schedule.Take(now) {
		l.steps.step(p)
	}
	l.keeper.Wake(now)
	l.evictor.wake(now)
	if l.users.Due(now) {
		l.plan.sync()
	}
}

// arm sets the one timer to the earliest time at which something is due.
func (l *loop) arm(timer *time.Timer) {
	next, _ := l.schedule.Next()
	next = pace.Earliest(next, l.keeper.Next(), l.evictor.next, l.ending.next, l.users.Next())
	timer.Stop()
	if !next.IsZero() {
		timer.Reset(max(next.Sub(l.o.now()), 0))
	}
}

// event records one about a pod, or about one of its containers.
func (l *loop) event(pod *corev1.Pod, container, kind, reason, message string) {
	l.events.Record(events.Event{Object: events.About(pod, container), Type: kind, Reason: reason, Message: message}, l.o.now())
}

// nodeEvent records one about the node.
func (l *loop) nodeEvent(kind, reason, message string) {
	ref := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: l.o.Node.Name}
	l.events.Record(events.Event{Object: ref, Type: kind, Reason: reason, Message: message}, l.o.now())
}

// pause waits, and says whether the agent still runs.
func (l *loop) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}
