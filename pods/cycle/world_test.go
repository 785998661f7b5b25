package cycle

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// world plays the agent and the CRI for one pod, with a clock that the test moves.
type world struct {
	t       *testing.T
	now     time.Time
	start   time.Time
	boot    int
	r       *Record
	saved   []byte
	last    Decision
	events  []Event
	log     []string // actions as they were given out
	serial  int
	volumes bool
	set     Settings
	random  *rand.Rand // nil: actions take no time and TERM ends a container at once

	sandboxes  []*Sandbox
	containers []*box
	under      map[string]*work
	results    []Result
	changed    bool
	held       map[Verb]bool
	fails      map[string][]Result // by verb and container
	stubborn   map[string]bool
	immortal   map[string]bool
	over       bool
	preStops   map[string]int
	reloads    int
	restarts   map[string]int32
	phases     []corev1.PodPhase
	noStart    bool
	lazy       bool // what may be written later is never written
	early      bool // the agent dies when it asks for a container next, before that is written
}

// box is a container of the world.
type box struct {
	Observation
	term time.Time // when it ends after a signal, zero without
	ends time.Time // when it ends by itself, zero never
	code int32
}

// work is an action under way.
type work struct {
	Action
	due time.Time
	hit bool // it took effect
}

func newWorld(t *testing.T, pod *corev1.Pod) *world {
	start := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	w := &world{t: t, now: start, start: start, boot: 1, under: map[string]*work{}, held: map[Verb]bool{},
		fails: map[string][]Result{}, stubborn: map[string]bool{}, immortal: map[string]bool{}, preStops: map[string]int{}, restarts: map[string]int32{},
		set: Settings{CrashLoopMax: 300 * time.Second, HostIPs: []string{"192.0.2.1"}, Runtime: "sunaba"}}
	w.r = New(pod, "runc", Source{Kind: "file", File: "pod.yaml"})
	w.save()
	return w
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	tail := w.log
	if len(tail) > 40 {
		tail = tail[len(tail)-40:]
	}
	data, _ := json.MarshalIndent(w.r, "", " ")
	w.t.Fatalf("at %s: %s\nactions:\n%s\nrecord: %s", w.now.Sub(w.start), fmt.Sprintf(format, args...), strings.Join(tail, "\n"), data)
}

func (w *world) save() {
	data, err := json.Marshal(w.r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.saved = data
}

// reload is the death of the agent: what was under way is lost, with or without effect.
func (w *world) reload() {
	w.reloads++
	for _, a := range w.under {
		if w.random != nil && w.random.Intn(2) == 0 {
			w.effect(a)
		}
	}
	w.under, w.results, w.volumes = map[string]*work{}, nil, false
	r := &Record{}
	if err := json.Unmarshal(w.saved, r); err != nil {
		w.t.Fatal(err)
	}
	w.r = r
}

func (w *world) observed() Observed {
	o := Observed{BootID: fmt.Sprint("boot", w.boot), Results: w.results, Volumes: w.volumes, Changed: w.changed}
	for _, s := range w.sandboxes {
		o.Sandboxes = append(o.Sandboxes, *s)
	}
	for _, c := range w.containers {
		o.Containers = append(o.Containers, c.Observation)
	}
	return o
}

// next calls Next once, checks what it says and takes over the actions. With crash the agent dies
// after the record was written and before the actions.
func (w *world) next(crash bool) {
	before, _ := json.Marshal(w.r)
	o := w.observed()
	w.results, w.changed = nil, false
	d := Next(w.r, o, w.now, w.set)
	after, _ := json.Marshal(w.r)
	if w.dies(d, crash) {
		return
	}
	if string(before) != string(after) && !d.Save && !d.Dirty {
		w.fatalf("the record changed without Save or Dirty:\n%s\n%s", before, after)
	}
	if d.Save || d.Dirty && !w.lazy && (w.random == nil || w.random.Intn(2) == 0) {
		w.saved = after
	}
	w.last = d
	w.over = d.Over
	w.check(d)
	if crash {
		w.reload()
		return
	}
	w.events = append(w.events, d.Events...)
	for _, a := range d.Actions {
		w.begin(a)
	}
	for _, subject := range d.Cancel {
		if a := w.under[subject]; a == nil {
			w.fatalf("cancelled %q is not under way", subject)
		} else {
			delete(w.under, subject)
			w.results = append(w.results, Result{Action: a.Action, Reason: Reason{"Cancelled", "context canceled"}, At: w.now, Cancelled: true})
		}
	}
	w.again(o)
}

// dies has the agent die before the record is written: containers that it asked for are created
// perhaps, and none of them is started.
func (w *world) dies(d Decision, crash bool) bool {
	var asked []Action
	for _, a := range d.Actions {
		if a.Verb == StartContainer {
			asked = append(asked, a)
		}
	}
	if !(w.early && len(asked) > 0 || crash && w.random.Intn(2) == 0) {
		return false
	}
	w.early = false
	for _, a := range asked {
		w.startBox(a)
		if c := w.newest(a.Container); c != nil && c.Attempt == a.Attempt {
			c.State, c.Started, c.ends = StateCreated, time.Time{}, time.Time{}
		}
	}
	w.reload()
	return true
}

// again checks that a second call at the same time asks for nothing that was asked for, and that
// the status is the same.
func (w *world) again(o Observed) {
	if len(w.results) > 0 {
		return
	}
	o.Results, o.Changed = nil, false
	first := w.last.Status
	d := Next(w.r, o, w.now, w.set)
	for _, a := range d.Actions {
		if x := w.under[a.Subject]; x != nil {
			w.fatalf("asked twice: %+v", a)
		}
		w.begin(a)
	}
	for _, e := range d.Events {
		for _, old := range w.last.Events {
			if e == old {
				w.fatalf("event twice: %+v", e)
			}
		}
	}
	w.events = append(w.events, d.Events...)
	if d.Save {
		w.save()
	}
	w.check(d)
	if len(d.Actions) == 0 && !d.Save && !d.Dirty && !reflect.DeepEqual(first, d.Status) && len(w.last.Actions) == 0 {
		w.fatalf("status differs on a second call:\n%+v\n%+v", first, d.Status)
	}
	w.last = d
}

// begin starts an action.
func (w *world) begin(a Action) {
	if w.under[a.Subject] != nil {
		w.fatalf("two actions of subject %q: %+v", a.Subject, a)
	}
	text := fmt.Sprintf("%s %s", w.now.Sub(w.start), a.Verb)
	if a.Container != "" {
		text += " " + a.Container
	}
	switch a.Verb {
	case StartContainer, RunSandbox:
		text += fmt.Sprintf(" %d", a.Attempt)
	case StopContainer:
		text += " " + a.Grace.String()
	case SetUpVolumes, StopSandbox, RemoveSandbox, RunPostStart, RunPreStop, RemoveContainer, TearDown, PullImage:
	}
	w.log = append(w.log, text)
	if a.Verb == StartContainer && w.noStart {
		w.fatalf("started after the end: %+v", a)
	}
	if a.Verb == RunPreStop {
		if w.preStops[a.ID]++; w.preStops[a.ID] > 1+w.reloads {
			w.fatalf("preStop of %s began %d times", a.ID, w.preStops[a.ID])
		}
	}
	x := &work{Action: a}
	if w.random != nil {
		x.due = w.now.Add(time.Duration(w.random.Intn(3000)) * time.Millisecond)
	}
	w.under[a.Subject] = x
	if a.Verb == StopContainer {
		w.signal(a)
	}
}

// find is a container of the world, nil if it is not there.
func (w *world) find(id string) *box {
	for _, c := range w.containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// newest is the newest container of a name, nil without.
func (w *world) newest(name string) *box {
	var found *box
	for _, c := range w.containers {
		if c.Name == name && (found == nil || c.Attempt > found.Attempt) {
			found = c
		}
	}
	return found
}

// signal sends the stop signal.
func (w *world) signal(a Action) {
	c := w.find(a.ID)
	if c == nil || c.State != StateRunning {
		return
	}
	ends := w.now
	c.code = 143
	if w.immortal[c.Name] {
		return
	}
	if w.stubborn[c.Name] {
		ends, c.code = w.now.Add(a.Grace), 137
	} else if w.random != nil {
		ends = w.now.Add(time.Duration(w.random.Int63n(int64(a.Grace) + 1)))
		c.code = []int32{0, 143}[w.random.Intn(2)]
	}
	if c.term.IsZero() || ends.Before(c.term) {
		c.term = ends
	}
}

// exit ends a container.
func (w *world) exit(c *box, code int32) {
	if c.State != StateRunning {
		return
	}
	c.State, c.ExitCode, c.Finished = StateExited, code, w.now
	c.Startup, c.Readiness, c.Liveness = ProbeUnknown, ProbeUnknown, ProbeUnknown
	c.Reason = "Error"
	switch code {
	case 0:
		c.Reason = "Completed"
	case lostExit:
		c.Reason = lostStatus
	}
}

// effect does what an action does.
func (w *world) effect(a *work) {
	if a.hit {
		return
	}
	a.hit = true
	switch a.Verb {
	case SetUpVolumes:
		w.volumes = true
	case RunSandbox:
		for _, s := range w.sandboxes {
			if s.Attempt == a.Attempt {
				w.fatalf("sandbox attempt %d twice", a.Attempt)
			}
		}
		w.serial++
		w.sandboxes = append(w.sandboxes, &Sandbox{ID: fmt.Sprint("s", w.serial), Attempt: a.Attempt, Ready: true, Created: w.now,
			IPs: []string{fmt.Sprintf("10.0.0.%d", w.serial%250)}, HostNetwork: w.r.Pod.Spec.HostNetwork})
	case StopSandbox:
		for _, s := range w.sandboxes {
			if s.ID == a.ID {
				s.Ready = false
			}
		}
	case RemoveSandbox:
		for i, s := range w.sandboxes {
			if s.ID == a.ID {
				w.sandboxes = append(w.sandboxes[:i], w.sandboxes[i+1:]...)
				break
			}
		}
	case StartContainer:
		w.startBox(a.Action)
	case RemoveContainer:
		for i, c := range w.containers {
			if c.ID == a.ID {
				if c.State == StateRunning {
					w.fatalf("removed while it runs: %s", c.ID)
				}
				w.containers = append(w.containers[:i], w.containers[i+1:]...)
				break
			}
		}
	case StopContainer, RunPostStart, RunPreStop, TearDown, PullImage:
	}
}

func (w *world) startBox(a Action) {
	up := false
	for _, s := range w.sandboxes {
		up = up || s.ID == a.SandboxID && s.Ready
	}
	if !up {
		return
	}
	for _, c := range w.containers {
		if c.Name == a.Container && c.Attempt == a.Attempt {
			w.fatalf("container %s attempt %d twice", c.Name, c.Attempt)
		}
		if c.Name == a.Container && c.State == StateRunning {
			w.fatalf("two running containers of %s", c.Name)
		}
	}
	w.serial++
	c := &box{Observation: Observation{ID: fmt.Sprint(a.Container, "-", w.serial), SandboxID: a.SandboxID, Name: a.Container,
		Attempt: a.Attempt, State: StateRunning, Created: w.now, Started: w.now, Image: "i", ImageID: "i@sha256:1"}}
	if w.random != nil {
		c.ends, c.code = w.lifetime()
	}
	w.containers = append(w.containers, c)
}

func (w *world) lifetime() (time.Time, int32) {
	code := []int32{0, 0, 1, 42}[w.random.Intn(4)]
	switch w.random.Intn(4) {
	case 0:
		return w.now, code
	case 1:
		return time.Time{}, code
	}
	return w.now.Add(time.Duration(w.random.Intn(900)) * time.Second), code
}
