// Package probes runs the startup, readiness and liveness probes of containers, as the Kubernetes
// documentation describes them. The times of all probes are in one heap with one timer: while no
// probe runs, there is no goroutine.
package probes

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
)

// Kind is the kind of a probe.
type Kind int

// The kinds of probes.
const (
	Startup Kind = iota
	Readiness
	Liveness
	kinds
)

// String is the kind's name in events and metrics.
func (k Kind) String() string {
	return [...]string{"Startup", "Readiness", "Liveness"}[k]
}

// spec returns the container's probe of the kind, nil without.
func (k Kind) spec(c *corev1.Container) *corev1.Probe {
	return [...]*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe}[k]
}

// Exec runs a command in a container and returns what it wrote and its exit code. An error of the
// class DeadlineExceeded says that the command took longer than the timeout; any other that it
// failed to run.
type Exec func(ctx context.Context, containerID string, command []string, timeout time.Duration) (
	stdout, stderr []byte, exit int32, err error)

// Options are what a Prober needs.
type Options struct {
	// Exec runs the commands of exec probes.
	Exec Exec
	// UserAgent follows "kube-probe/" in the User-Agent of requests: "sunaba-VERSION".
	UserAgent string
	// Failed, if set, takes the event of each probe that did not succeed. Changed, if set, is
	// called after a result of a container of the pod changed. Both are called without any lock,
	// from several goroutines.
	Failed  func(Event)
	Changed func(uid string)
	Logger  *slog.Logger
}

// Event is one about a container, of the type Warning.
type Event struct {
	UID, Container, ContainerID string
	// Reason is Unhealthy or ProbeWarning.
	Reason, Message string
}

// Prober runs probes. Its methods may be called at the same time.
type Prober struct {
	o     Options
	maker *maker
	ctx   context.Context
	stop  context.CancelFunc
	birth time.Time
	// random returns fractions from 0 up to 1.
	random func() float64

	work sync.WaitGroup // probes that run

	mu       sync.Mutex
	timer    *time.Timer
	schedule schedule
	running  int
	pods     map[string]*pod
	byID     map[string]*container
}

// pod is a pod whose containers are or were probed.
type pod struct {
	uid, namespace, name string
	object               *corev1.Pod
	ip                   string
	running              int // probes
	containers           map[string]*container
	counts               map[string]*[kinds]Count
}

// container is the newest container of its name that was probed.
type container struct {
	pod     *pod
	id      string
	name    string
	started time.Time
	results [kinds]cycle.ProbeResult
	message string
	probes  [kinds]*probe
}

// New returns a prober that runs nothing yet. It is to be closed.
func New(o Options) *Prober {
	ctx, stop := context.WithCancel(context.Background())
	return &Prober{
		o: o, maker: &maker{web: newWeb(), exec: o.Exec, agent: "kube-probe/" + o.UserAgent},
		ctx: ctx, stop: stop, birth: time.Now(), random: rand.Float64,
		pods: map[string]*pod{}, byID: map[string]*container{},
	}
}

// Close ends all probes and waits until none runs any more.
func (p *Prober) Close() {
	p.mu.Lock()
	p.stop()
	for uid := range p.pods {
		p.forget(uid)
	}
	p.arm(time.Now())
	p.mu.Unlock()
	p.work.Wait()
}

// Set says which probes of a pod's containers run from now on; any others of the pod stop at once,
// and what they find is not counted. Results of stopped probes stay until a newer container of
// their name is set or the pod is forgotten. The pod must not be changed afterwards; ip is that of
// the pod, or the node's if it has the host's network.
func (p *Prober) Set(uid string, object *corev1.Pod, ip string, sets []cycle.ProbeSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	now := time.Now()
	o := p.pods[uid]
	if o == nil {
		if len(sets) == 0 {
			return
		}
		o = &pod{uid: uid, namespace: object.Namespace, name: object.Name,
			containers: map[string]*container{}, counts: map[string]*[kinds]Count{}}
		p.pods[uid] = o
	}
	changed := o.object != object || o.ip != ip
	o.object, o.ip = object, ip
	kept := map[string]bool{}
	for _, s := range sets {
		spec := find(object, s.Container)
		if spec == nil {
			continue
		}
		kept[s.Container] = true
		p.container(o, spec, s, changed, now)
	}
	for name, c := range o.containers {
		if !kept[name] {
			for _, probe := range c.probes {
				p.end(probe)
			}
		}
	}
	p.pump(now)
}

// container starts and stops the probes of one container.
func (p *Prober) container(o *pod, spec *corev1.Container, s cycle.ProbeSet, changed bool, now time.Time) {
	c := o.containers[s.Container]
	if c == nil || c.id != s.ID {
		if c != nil {
			p.drop(c)
		}
		c = &container{pod: o, id: s.ID, name: s.Container, started: s.Started}
		o.containers[s.Container], p.byID[s.ID] = c, c
	}
	for kind, wanted := range [kinds]bool{s.Startup, s.Readiness, s.Liveness} {
		k := Kind(kind)
		if !wanted || k.spec(spec) == nil {
			p.end(c.probes[k])
			continue
		}
		if c.probes[k] == nil {
			c.probes[k] = &probe{pod: o, container: c, kind: k}
			c.results[k] = initial(k, c.started.Before(p.birth))
			changed = true
		}
		if changed {
			c.probes[k].spec = k.spec(spec)
			c.probes[k].check = p.maker.check(k.spec(spec), spec, o.ip)
		}
		p.start(c.probes[k], now)
	}
}

// initial is the result of a probe before it ran. Of a container that ran before this process it is
// not known: what was recorded of it holds until a probe says otherwise.
func initial(k Kind, adopted bool) cycle.ProbeResult {
	switch {
	case adopted || k == Startup:
		return cycle.ProbeUnknown
	case k == Readiness:
		return cycle.ProbeFailure
	default:
		return cycle.ProbeSuccess
	}
}

// find returns the container of the pod by its name; init containers too, for sidecars.
func find(o *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{o.Spec.Containers, o.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// Results returns the results of a container's probes, Unknown where none is defined or known, and
// the output of the last startup or liveness probe that failed.
func (p *Prober) Results(containerID string) (startup, readiness, liveness cycle.ProbeResult, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.byID[containerID]
	if c == nil {
		return cycle.ProbeUnknown, cycle.ProbeUnknown, cycle.ProbeUnknown, ""
	}
	return c.results[Startup], c.results[Readiness], c.results[Liveness], c.message
}

// Forget stops all probes of a pod and drops its results and counts.
func (p *Prober) Forget(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(uid)
	p.arm(time.Now())
}

func (p *Prober) forget(uid string) {
	o := p.pods[uid]
	if o == nil {
		return
	}
	for _, c := range o.containers {
		p.drop(c)
	}
	delete(p.pods, uid)
}

// drop ends the probes of a container and forgets it.
func (p *Prober) drop(c *container) {
	for _, probe := range c.probes {
		p.end(probe)
	}
	if p.byID[c.id] == c {
		delete(p.byID, c.id)
	}
	delete(c.pod.containers, c.name)
}
