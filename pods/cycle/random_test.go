package cycle

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// randomPod draws a pod.
func randomPod(t *testing.T, r *rand.Rand) *corev1.Pod {
	words := []string{"policy=" + []string{"Always", "OnFailure", "Never"}[r.Intn(3)], fmt.Sprint("grace=", r.Intn(12))}
	flags := func(all ...string) (text string) {
		for _, f := range all {
			if r.Intn(4) == 0 {
				text += ":" + f
			}
		}
		return text
	}
	for i := range r.Intn(4) {
		if r.Intn(2) == 0 {
			words = append(words, fmt.Sprint("init=i", i))
		} else {
			words = append(words, fmt.Sprint("sidecar=s", i)+flags("startup", "liveness=3", "readiness", "prestop", "poststart"))
		}
	}
	for i := range 1 + r.Intn(3) {
		words = append(words, fmt.Sprint("app=a", i)+flags("startup", "liveness", "readiness", "prestop", "poststart", "policy=Always", "policy=Never", "rule=42"))
	}
	if r.Intn(6) == 0 {
		words = append(words, fmt.Sprint("deadline=", 1+r.Intn(4000)))
	}
	return podOf(t, words)
}

// TestRandom plays random pods with faults, orders and deaths of the agent, and checks the
// invariants of every decision (check, begin, effect).
func TestRandom(t *testing.T) {
	pods, steps := 250, 250
	if testing.Short() {
		pods = 40
	}
	ended := 0
	for seed := range pods {
		r := rand.New(rand.NewSource(int64(seed)))
		w := newWorld(t, randomPod(t, r))
		w.random = r
		for i := range steps {
			w.disturb(r, i)
			w.next(r.Intn(25) == 0)
			w.ordered()
			if w.over {
				break
			}
			at := w.upcoming()
			if random := w.now.Add(time.Duration(r.Intn(40000)) * time.Millisecond); at.IsZero() || at.After(random) || len(w.results) > 0 {
				at = random
			}
			w.now = at
			w.finish()
			w.floors()
			w.states()
		}
		if w.over {
			ended++
			continue
		}
		w.mustEnd(r)
	}
	if ended == 0 {
		t.Fatal("no pod was deleted on the way")
	}
}

// mustEnd checks that a deletion of an undisturbed pod ends it with nothing left.
func (w *world) mustEnd(r *rand.Rand) {
	w.r.Delete(-1, w.now)
	w.save()
	for i := 0; !w.over; i++ {
		if i > 400 {
			w.fatalf("the deletion never ends: waits for %s", w.last.Waiting)
		}
		w.next(false)
		at := w.upcoming()
		if at.IsZero() || len(w.results) > 0 {
			at = w.now.Add(time.Millisecond)
		}
		w.now = at
		w.finish()
	}
	if len(w.containers)+len(w.sandboxes) > 0 {
		w.fatalf("left after the end: %d containers, %d sandboxes", len(w.containers), len(w.sandboxes))
	}
}

// disturb does what strangers do.
func (w *world) disturb(r *rand.Rand, i int) {
	pick := func() *box {
		if len(w.containers) == 0 {
			return nil
		}
		return w.containers[r.Intn(len(w.containers))]
	}
	c := pick()
	changed := true
	switch n := r.Intn(120); {
	case n < 2:
		w.reload()
	case n == 2:
		w.reboot()
	case n == 3 && len(w.sandboxes) > 0:
		w.sandboxes[r.Intn(len(w.sandboxes))].Ready = false
	case n == 4 && c != nil && c.State != StateRunning:
		for k, x := range w.containers {
			if x == c {
				w.containers = append(w.containers[:k], w.containers[k+1:]...)
				break
			}
		}
	case n < 25 && c != nil && c.State == StateRunning:
		*[]*ProbeResult{&c.Startup, &c.Readiness, &c.Liveness}[r.Intn(3)] = []ProbeResult{ProbeSuccess, ProbeSuccess, ProbeFailure}[r.Intn(3)]
	case n == 25:
		_ = w.r.Restart(nil, Reason{"Restart", "by command"})
		w.save()
	case n == 26:
		w.r.Interrupt(time.Duration(r.Intn(9))*time.Second, w.now)
		w.save()
	case n < 30:
		w.r.Resume()
		w.save()
	case n == 30:
		pod := w.r.Pod.DeepCopy()
		pod.Spec.Containers[0].Image = fmt.Sprint("i", i)
		pod.Generation++
		w.r.Edit(pod)
		w.save()
	case n == 31:
		_ = w.r.AddEphemeral(corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprint("d", i)}})
		w.save()
	case n == 32 && i > 60:
		w.r.Delete(time.Duration(r.Intn(9)-1)*time.Second, w.now)
		w.save()
	case n == 33:
		w.stubborn[fmt.Sprint("a", r.Intn(3))] = r.Intn(2) == 0
	case n == 34:
		w.changed = true
	case n == 36 && i > 60: // as an eviction
		w.r.Purge = true
		w.r.End(Final{corev1.PodFailed, "Evicted", ""}, time.Second, nil, w.now)
		w.save()
	case n == 35:
		w.now = w.now.Add(time.Duration(r.Intn(7200)) * time.Second)
	default:
		changed = false
	}
	if changed {
		w.finish()
	}
}

// ordered checks that sidecars are not signalled before regular containers are over or the grace is
// spent (TM9).
func (w *world) ordered() {
	if w.r.Deletion == nil {
		return
	}
	for _, a := range w.last.Actions {
		if a.Verb != StopContainer || a.Container == "" || a.Container[0] != 's' || a.Grace <= leastGrace {
			continue
		}
		for _, c := range w.containers {
			if c.State == StateRunning && c.Name[0] == 'a' {
				w.fatalf("%s is signalled while %s runs", a.Container, c.Name)
			}
		}
	}
}

// floors checks that an independent count of crashes allows each start: no run begins earlier after
// the end of the one before than the least delay that the number of crashes in a row demands.
func (w *world) floors() {
	for _, c := range w.containers {
		if c.State != StateRunning || c.Started != w.now {
			continue
		}
		rec := w.r.Containers[c.Name]
		if rec == nil || rec.Attempt != c.Attempt || rec.BackOff.Delay == 0 || rec.BackOff.Of+1 != c.Attempt ||
			rec.BackOff.Since.Before(rec.BackOff.Ended) { // started by order, or in a new sandbox
			continue
		}
		if rec.BackOff.Delay > firstDelay && !rec.BackOff.Since.Before(rec.BackOff.Ended.Add(rec.BackOff.Delay/2)) {
			continue
		}
		if rec.BackOff.Delay > firstDelay && rec.BackOff.Delay < longestDelay {
			w.fatalf("%s was started %s after its end with a back-off of %s", c.Name, rec.BackOff.Since.Sub(rec.BackOff.Ended), rec.BackOff.Delay/2)
		}
	}
}

// states checks that each container is in exactly one state, which has what it must have (ST1).
func (w *world) states() {
	for _, list := range [][]corev1.ContainerStatus{w.last.Status.InitContainerStatuses, w.last.Status.ContainerStatuses, w.last.Status.EphemeralContainerStatuses} {
		for _, c := range list {
			s := c.State
			switch {
			case s.Waiting != nil && s.Running == nil && s.Terminated == nil && s.Waiting.Reason != "":
			case s.Running != nil && s.Waiting == nil && s.Terminated == nil && !s.Running.StartedAt.IsZero():
			case s.Terminated != nil && s.Waiting == nil && s.Running == nil && s.Terminated.Reason != "" && !s.Terminated.FinishedAt.Before(&s.Terminated.StartedAt):
			default:
				w.fatalf("%s is in state %+v", c.Name, s)
			}
		}
	}
}

// TestDay plays 24 hours of a pod whose container crashes at once each time, with an independent
// count of when it is to be started, and of one that runs quietly: that one is not looked at again.
func TestDay(t *testing.T) {
	w := newWorld(t, podOf(t, []string{"app=a", "sidecar=s:readiness"}))
	w.settle()
	at, delay, starts := w.now, time.Duration(0), int32(0)
	for w.now.Sub(w.start) < 24*time.Hour {
		w.exit(w.newest("a"), 1)
		w.settle()
		if delay > 0 {
			w.advance(delay - time.Millisecond)
			if c := w.newest("a"); c.State == StateRunning {
				w.fatalf("started before the delay of %s", delay)
			}
			w.advance(time.Millisecond)
		}
		starts++
		c := w.newest("a")
		if at = at.Add(delay); c.State != StateRunning || !c.Started.Equal(at) || int32(c.Attempt) != starts {
			w.fatalf("attempt %d at %s, want %d at %s", c.Attempt, c.Started, starts, at)
		}
		delay = min(max(10*time.Second, 2*delay), 300*time.Second)
	}
	if starts < 290 || starts > 296 {
		t.Fatalf("%d starts in 24 hours", starts)
	}
	if n := len(w.containers); n > 3 {
		t.Fatalf("%d containers are left", n)
	}
	if n := len(w.r.Live.Told) + len(w.r.Live.Stopped) + len(w.r.Live.Failures); n > 6 {
		t.Fatalf("%d entries are kept in memory: %+v", n, w.r.Live)
	}

	quiet := newWorld(t, podOf(t, []string{"app=a:liveness:readiness"}))
	quiet.settle()
	quiet.newest("a").Readiness = ProbeSuccess
	quiet.settle()
	for range 24 * 60 {
		quiet.now = quiet.now.Add(time.Minute)
		quiet.next(false)
		if d := quiet.last; d.Save || d.Dirty || len(d.Actions) > 0 || !d.Wake.IsZero() {
			quiet.fatalf("a quiet pod costs something: %+v", d)
		}
	}
}
