package cycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// finish executes what is due. It says whether anything happened.
func (w *world) finish() bool {
	did := false
	for _, c := range w.containers {
		switch {
		case c.State != StateRunning:
		case !c.term.IsZero() && !w.now.Before(c.term):
			w.exit(c, c.code)
			did = true
		case !c.ends.IsZero() && !w.now.Before(c.ends):
			w.exit(c, c.code)
			did = true
		}
	}
	for _, subject := range sorted(w.under) {
		a := w.under[subject]
		if a.due.After(w.now) || w.held[a.Verb] {
			continue
		}
		if c := w.find(a.ID); a.Verb == StopContainer && c != nil && c.State == StateRunning {
			continue
		}
		delete(w.under, subject)
		did = true
		res := Result{Action: a.Action, At: w.now}
		key := string(a.Verb) + " " + a.Container
		if list := w.fails[key]; len(list) > 0 {
			res.Reason, res.Wait, res.Delay = list[0].Reason, list[0].Wait, list[0].Delay
			w.fails[key] = list[1:]
		} else if w.random != nil && w.random.Intn(12) == 0 {
			res.Reason = Reason{"CreateContainerError", "it failed"}
		} else {
			w.effect(a)
		}
		w.results = append(w.results, res)
	}
	return did
}

func sorted(m map[string]*work) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	for i := range keys {
		for j := i; j > 0 && keys[j] < keys[j-1]; j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
		}
	}
	return keys
}

// settle calls Next until nothing happens at this time any more.
func (w *world) settle() {
	for i := 0; ; i++ {
		if i > 200 {
			w.fatalf("never settles")
		}
		dies := w.early
		w.next(false)
		if dies && !w.early { // the next agent starts
			continue
		}
		if !w.finish() && len(w.results) == 0 || w.over {
			return
		}
	}
}

// upcoming is when something happens next, zero for never.
func (w *world) upcoming() time.Time {
	at := w.last.Wake
	sooner := func(t time.Time) {
		if !t.IsZero() && t.After(w.now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, a := range w.under {
		if !w.held[a.Verb] {
			sooner(a.due)
		}
	}
	for _, c := range w.containers {
		if c.State == StateRunning {
			sooner(c.ends)
			sooner(c.term)
		}
	}
	return at
}

// advance moves the clock, with all that happens until then.
func (w *world) advance(by time.Duration) {
	end := w.now.Add(by)
	for !w.over {
		at := w.upcoming()
		if at.IsZero() || at.After(end) {
			break
		}
		if !at.After(w.now) {
			w.fatalf("Wake is not in the future: %s", w.last.Wake.Sub(w.start))
		}
		w.now = at
		w.finish()
		w.settle()
	}
	w.now = end
	if !w.over {
		w.settle()
	}
}

// check looks at the invariants of one decision.
func (w *world) check(d Decision) {
	st := d.Status
	if !d.Wake.IsZero() && !d.Wake.After(w.now) {
		w.fatalf("Wake %s is not in the future", d.Wake.Sub(w.start))
	}
	all := append(append(append([]corev1.ContainerStatus(nil), st.InitContainerStatuses...), st.ContainerStatuses...),
		st.EphemeralContainerStatuses...)
	for _, s := range all {
		if s.RestartCount < w.restarts[s.Name] {
			w.fatalf("restart count of %s fell from %d to %d", s.Name, w.restarts[s.Name], s.RestartCount)
		}
		w.restarts[s.Name] = s.RestartCount
		set := 0
		for _, is := range []bool{s.State.Running != nil, s.State.Waiting != nil, s.State.Terminated != nil} {
			if is {
				set++
			}
		}
		if set != 1 || s.State.Waiting != nil && s.State.Waiting.Reason == "" || s.Ready && s.State.Waiting != nil {
			w.fatalf("status of %s: %+v", s.Name, s)
		}
	}
	if n := len(w.phases); n == 0 || w.phases[n-1] != st.Phase {
		if n > 0 && (w.phases[n-1] == corev1.PodSucceeded || w.phases[n-1] == corev1.PodFailed) {
			w.fatalf("phase %s after %s", st.Phase, w.phases[n-1])
		}
		w.phases = append(w.phases, st.Phase)
	}
	switch st.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		w.noStart = true
	case corev1.PodPending, corev1.PodRunning:
	default:
		w.fatalf("phase %q", st.Phase) // PH1
	}
	if w.r.Deletion != nil {
		w.noStart = true
	}
	for _, p := range d.Probes {
		if c := w.find(p.ID); c == nil || c.State != StateRunning {
			w.fatalf("probe of %s, which does not run", p.ID)
		}
	}
}
