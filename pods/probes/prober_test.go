package probes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
)

// rig is a prober in a bubble whose clock stands still unless everything waits. Its exec probes
// answer what the test says.
type rig struct {
	*Prober
	start time.Time
	// answer is asked for each run of a command, with how many there were before.
	answer func(ctx context.Context, id string, command []string, before int) (exit int32, err error)

	mu          sync.Mutex
	calls       []string // "SECONDS ID COMMAND"
	events      []string
	changes     []string
	now, most   int // that run at once
	podNow, all map[string]int
}

func newRig(t *testing.T) *rig {
	r := &rig{podNow: map[string]int{}, all: map[string]int{}, start: time.Now()}
	r.Prober = New(Options{
		Exec: func(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, int32, error) {
			r.mu.Lock()
			before := r.all[id+command[0]]
			r.all[id+command[0]]++
			r.calls = append(r.calls, fmt.Sprintf("%g %s %s", time.Since(r.start).Seconds(), id, strings.Join(command, " ")))
			r.now++
			r.most = max(r.most, r.now)
			r.mu.Unlock()
			defer func() { r.mu.Lock(); r.now--; r.mu.Unlock() }()
			limited, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			exit, err := r.answer(limited, id, command, before)
			return []byte("out"), []byte("err"), exit, err
		},
		Failed: func(e Event) {
			r.mu.Lock()
			r.events = append(r.events, e.Reason+" "+e.Container+" "+e.Message)
			r.mu.Unlock()
		},
		Changed: func(uid string) {
			r.mu.Lock()
			r.changes = append(r.changes, fmt.Sprintf("%g %s", time.Since(r.start).Seconds(), uid))
			r.mu.Unlock()
		},
	})
	r.random = func() float64 { return 0.5 }
	r.answer = func(context.Context, string, []string, int) (int32, error) { return 0, nil }
	t.Cleanup(r.Close)
	return r
}

// pass lets the clock run and then waits until nothing runs that does not wait for it.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ran is how often a command of a container ran, by both their names.
func (r *rig) ran(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[key]
}

func (r *rig) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.calls) // those of one instant have no order
	slices.Sort(want)
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(r.calls, "\n"), strings.Join(want, "\n"))
	}
}

func (r *rig) wantResults(t *testing.T, id string, startup, readiness, liveness cycle.ProbeResult) {
	t.Helper()
	synctest.Wait()
	s, e, l, _ := r.Results(id)
	if s != startup || e != readiness || l != liveness {
		t.Errorf("after %v results of %s: %v %v %v, want %v %v %v", time.Since(r.start), id, s, e, l, startup, readiness, liveness)
	}
}

const (
	unk = cycle.ProbeUnknown
	yes = cycle.ProbeSuccess
	no  = cycle.ProbeFailure
)

func command(period, timeout, succeed, fail int32, words ...string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: words}},
		PeriodSeconds: period, TimeoutSeconds: timeout, SuccessThreshold: succeed, FailureThreshold: fail,
	}
}

func podOf(containers ...corev1.Container) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
	p.Namespace, p.Name = "default", "web"
	return p
}

func (r *rig) set(o *corev1.Pod, id string, startup, readiness, liveness bool) {
	r.Set("u", o, "192.0.2.1", []cycle.ProbeSet{
		{Container: "app", ID: id, Started: time.Now(), Startup: startup, Readiness: readiness, Liveness: liveness},
	})
}

// PR2, PR3, PR4, PR12: the startup probe runs alone until it passed; then the others run at once.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.answer = func(_ context.Context, _ string, command []string, before int) (int32, error) {
			if command[0] == "start" && before < 2 {
				return 1, nil
			}
			return 0, nil
		}
		o := podOf(corev1.Container{Name: "app",
			StartupProbe: command(1, 1, 1, 30, "start"), ReadinessProbe: command(30, 1, 1, 3, "ready"), LivenessProbe: command(10, 1, 1, 3, "live")})
		r.set(o, "1", true, false, false)
		r.wantResults(t, "1", unk, unk, unk)
		r.pass(1500 * time.Millisecond)
		r.wantResults(t, "1", unk, unk, unk)
		r.pass(500 * time.Millisecond)
		r.wantResults(t, "1", yes, unk, unk)
		r.pass(5 * time.Millisecond)
		r.set(o, "1", false, true, true)
		r.pass(20 * time.Second)
		r.wantResults(t, "1", yes, yes, yes)
		r.wantCalls(t, "0 1 start", "1 1 start", "2 1 start", "2.005 1 ready", "2.005 1 live", "12.005 1 live", "22.005 1 live")
		if want := []string{"2 u", "2.005 u"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes: %v, want %v", r.changes, want)
		}
	})
}

// PR4: what is said before any probe ran.
func TestInitialResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		o := podOf(corev1.Container{Name: "app", StartupProbe: command(1, 1, 1, 1, "start"),
			ReadinessProbe: command(1, 1, 1, 1, "ready"), LivenessProbe: command(1, 1, 1, 1, "live")})
		for _, p := range []*corev1.Probe{o.Spec.Containers[0].StartupProbe, o.Spec.Containers[0].ReadinessProbe, o.Spec.Containers[0].LivenessProbe} {
			p.InitialDelaySeconds = 5
		}
		r.pass(time.Millisecond)
		r.set(o, "1", true, true, true)
		r.wantResults(t, "1", unk, no, yes)
		r.wantResults(t, "other", unk, unk, unk)
		r.pass(5 * time.Second)
		r.wantResults(t, "1", yes, yes, yes)
		if len(r.calls) != 3 || !strings.HasPrefix(r.calls[0], "5.001 ") { // PR5
			t.Errorf("calls: %v", r.calls)
		}
	})
}

// PR7, PR24: of a container that ran before the agent did nothing is known, and its first probe
// comes after a random part of the period.
func TestAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		o := podOf(corev1.Container{Name: "app", ReadinessProbe: command(10, 1, 1, 3, "ready"), LivenessProbe: command(4, 1, 1, 3, "live")})
		r.Set("u", o, "", []cycle.ProbeSet{{Container: "app", ID: "1", Started: r.start.Add(-time.Hour), Readiness: true, Liveness: true}})
		r.pass(time.Second)
		r.wantResults(t, "1", unk, unk, unk)
		r.pass(4 * time.Second)
		r.wantResults(t, "1", unk, yes, yes)
		r.wantCalls(t, "2 1 live", "5 1 ready")
	})
}

// PR6: probes of one container and kind never overlap, and a slow one delays the next.
func TestSlowProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.answer = func(_ context.Context, _ string, _ []string, before int) (int32, error) {
			time.Sleep([]time.Duration{700, 1500, 100, 100}[min(before, 3)] * time.Millisecond)
			return 0, nil
		}
		r.set(podOf(corev1.Container{Name: "app", ReadinessProbe: command(1, 10, 1, 3, "ready")}), "1", false, true, false)
		r.pass(4 * time.Second)
		r.wantCalls(t, "0 1 ready", "1 1 ready", "2.5 1 ready", "3.5 1 ready")
		if r.most != 1 {
			t.Errorf("%d ran at once", r.most)
		}
	})
}

// PR8, PR10: each failure has an event; at the threshold the result changes and a liveness probe
// rests until there is a new container, which starts at zero.
func TestThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.answer = func(_ context.Context, id string, command []string, before int) (int32, error) {
			if id == "2" {
				return 1, nil
			}
			return []int32{0, 1, 1, 0, 1, 1, 1, 0}[before], nil
		}
		o := podOf(corev1.Container{Name: "app", ReadinessProbe: command(1, 1, 1, 3, "ready"), LivenessProbe: command(1, 1, 1, 3, "live")})
		r.set(o, "1", false, true, true)
		r.pass(5500 * time.Millisecond)
		r.wantResults(t, "1", unk, yes, yes)
		r.pass(time.Second)
		r.wantResults(t, "1", unk, no, no)
		r.set(o, "1", false, true, true) // it is on, but it rests
		r.pass(time.Second)
		r.wantResults(t, "1", unk, yes, no)
		if _, _, _, message := r.Results("1"); message != "outerr" {
			t.Errorf("message: %q", message)
		}
		if got := r.ran("1live"); got != 7 {
			t.Errorf("%d liveness probes, want 7", got)
		}
		if got := slices.Index(r.events, "Unhealthy app Liveness probe failed: outerr"); len(r.events) != 10 || got < 0 {
			t.Errorf("events: %q", r.events)
		}
		if want := []string{"0 u", "6 u", "6 u", "7 u"}; !slices.Equal(r.changes, want) {
			t.Errorf("changes: %v, want %v", r.changes, want)
		}
		r.set(o, "2", false, true, true)
		r.pass(1500 * time.Millisecond)
		r.wantResults(t, "2", unk, no, yes) // two of three
		r.wantResults(t, "1", unk, unk, unk)
		r.pass(time.Second)
		r.wantResults(t, "2", unk, no, no)
	})
}

// PR9: what could not be carried out is tried three times at once and changes nothing.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.answer = func(_ context.Context, _ string, _ []string, before int) (int32, error) {
			switch {
			case before < 3:
				return 1, nil
			case before < 6 || before == 7:
				return 0, fmt.Errorf("exec: %w", errdefs.ErrUnavailable)
			}
			return 0, nil
		}
		r.set(podOf(corev1.Container{Name: "app", ReadinessProbe: command(1, 1, 2, 3, "ready")}), "1", false, true, false)
		r.pass(4500 * time.Millisecond) // fails 3 times, cannot be carried out at 3 s, passes at 4 s
		r.wantResults(t, "1", unk, no, unk)
		r.pass(time.Second) // passes again, at the second try: two in a row
		r.wantResults(t, "1", unk, yes, unk)
		r.wantCalls(t, "0 1 ready", "1 1 ready", "2 1 ready", "3 1 ready", "3 1 ready", "3 1 ready", "4 1 ready", "5 1 ready", "5 1 ready")
		if want := "Unhealthy app Readiness probe errored and resulted in unknown state: exec: unavailable"; r.events[3] != want || len(r.events) != 4 {
			t.Errorf("events: %q", r.events)
		}
		want := Count{UID: "u", Namespace: "default", Pod: "web", Container: "app", Kind: Readiness, Successful: 2, Failed: 3, Unknown: 1}
		if got := r.Counts(); len(got) != 1 || got[0] != want { // PR26
			t.Errorf("counts: %+v", got)
		}
	})
}

// PR13: the exit code decides, a time-out is a failure, variables with a plain value are expanded.
func TestExec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.answer = func(ctx context.Context, _ string, _ []string, before int) (int32, error) {
			switch before {
			case 0:
				<-ctx.Done()
				return 0, ctx.Err()
			case 1:
				time.Sleep(time.Hour) // the server does not keep the time
			}
			return 126, nil
		}
		c := corev1.Container{Name: "app", LivenessProbe: command(5, 2, 1, 10, "check", "$(A)", "[$(B)]"), Env: []corev1.EnvVar{
			{Name: "A", Value: "plain"},
			{Name: "B", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		}}
		r.set(podOf(c), "1", false, false, true)
		r.pass(3 * time.Second)
		r.wantCalls(t, "0 1 check plain []")
		if want := []string{`Unhealthy app Liveness probe failed: command timed out: "check plain []" timed out after 2s`}; !slices.Equal(r.events, want) {
			t.Errorf("events: %q, want %q", r.events, want)
		}
		if got := r.Counts(); len(got) != 1 || got[0].Failed != 1 || got[0].Duration != 0 {
			t.Errorf("counts: %+v", got)
		}
	})
}

// PR20: a probe that is not to run stops at once, also in the middle, and its result is dropped.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var canceled int
		r.answer = func(ctx context.Context, _ string, command []string, _ int) (int32, error) {
			if command[0] == "live" {
				<-ctx.Done()
				canceled++
				return 1, ctx.Err()
			}
			return 0, nil
		}
		o := podOf(corev1.Container{Name: "app", ReadinessProbe: command(1, 1, 1, 1, "ready"), LivenessProbe: command(1, 10, 1, 1, "live")})
		r.set(o, "1", false, true, true)
		r.pass(500 * time.Millisecond)
		r.set(o, "1", false, true, false)
		r.pass(time.Second)
		if canceled != 1 || r.ran("1live") != 1 || r.ran("1ready") != 2 || len(r.events) != 0 {
			t.Errorf("canceled %d, calls %v, events %v", canceled, r.calls, r.events)
		}
		r.wantResults(t, "1", unk, yes, yes)
		r.Set("u", o, "", nil)
		r.pass(time.Minute)
		if r.ran("1ready") != 2 {
			t.Errorf("calls after all were stopped: %v", r.calls)
		}
		r.wantResults(t, "1", unk, yes, yes) // they stay
		r.set(o, "1", false, true, false)
		r.pass(100 * time.Millisecond)
		if r.ran("1ready") != 3 { // the period is over long since
			t.Errorf("calls after it was set again: %v", r.calls)
		}
		r.Forget("u")
		r.pass(time.Minute)
		r.wantResults(t, "1", unk, unk, unk)
		if r.ran("1ready") != 3 || len(r.Counts()) != 0 {
			t.Errorf("calls after it was forgotten: %v, counts %v", r.calls, r.Counts())
		}
	})
}

// F: the number of probes at once is bounded, and pods with slow probes hold up no other's.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.answer = func(ctx context.Context, id string, _ []string, _ int) (int32, error) {
			if strings.HasPrefix(id, "slow") {
				time.Sleep(10 * time.Second)
			}
			return 0, nil
		}
		for i := range 20 {
			var list []corev1.Container
			var sets []cycle.ProbeSet
			for j := range 10 {
				name := fmt.Sprintf("c%d", j)
				list = append(list, corev1.Container{Name: name, LivenessProbe: command(60, 30, 1, 1, "live")})
				sets = append(sets, cycle.ProbeSet{Container: name, ID: fmt.Sprintf("slow-%d-%d", i, j), Started: time.Now(), Liveness: true})
			}
			r.Set(fmt.Sprintf("u%d", i), podOf(list...), "", sets)
		}
		synctest.Wait()
		// The first 8 pods have 8 each; every further one has 1.
		if r.now != 64+12 {
			t.Errorf("%d run at once, want 76", r.now)
		}
		r.set(podOf(corev1.Container{Name: "app", LivenessProbe: command(60, 1, 1, 1, "live")}), "quick", false, false, true)
		synctest.Wait()
		if r.ran("quicklive") != 1 {
			t.Error("the pod with the quick probe waits")
		}
		r.pass(50 * time.Second)
		if len(r.calls) != 201 || r.most > 64+21 {
			t.Errorf("%d probes ran, %d at once", len(r.calls), r.most)
		}
	})
}

// F: while no probe runs there is no goroutine of the prober, which synctest would see at the end,
// and after Close nothing runs.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.answer = func(ctx context.Context, _ string, _ []string, _ int) (int32, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		o := podOf(corev1.Container{Name: "app", LivenessProbe: command(1, 100, 1, 1, "live")})
		r.set(o, "1", false, false, true)
		synctest.Wait()
		r.Close()
		if r.now != 0 {
			t.Errorf("%d still run", r.now)
		}
		r.set(o, "1", false, false, true)
		r.pass(time.Minute)
		r.wantCalls(t, "0 1 live")
	})
}
