package probes

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
)

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// PR5: the delay counts from the start of the container. PR7: only containers that ran before this
// process wait for a part of the period, and only while it is younger than the period.
func TestFirst(t *testing.T) {
	for _, tt := range []struct {
		name                string
		now, birth, started float64
		delay, period       int32
		fraction            float64
		want                float64
	}{
		{"at once", 10.5, 0, 10, 0, 10, 0.5, 10.5},
		{"after the delay, not at a tick", 10.5, 0, 10, 5, 10, 0.5, 15},
		{"the delay is over", 20, 0, 10, 5, 10, 0.5, 20},
		{"adopted", 1, 0, -100, 0, 10, 0.5, 6},
		{"adopted with a delay that is longer", 1, 0, -1, 9, 10, 0.25, 8},
		{"adopted with a delay that is shorter", 1, 0, -1, 3, 10, 0.25, 3.5},
		{"adopted by a process that is as old as the period", 10, 0, -100, 0, 10, 0.5, 10},
		{"the clock was set back since it started", 10, 0, 3610, 5, 10, 0.5, 15},
		{"no period given counts as one second", 0.5, 0, -100, 0, 0, 0.5, 1},
	} {
		spec := &corev1.Probe{InitialDelaySeconds: tt.delay, PeriodSeconds: tt.period}
		if got := first(at(tt.now), at(tt.birth), at(tt.started), spec, tt.fraction); !got.Equal(at(tt.want)) {
			t.Errorf("%s: %v, want %v", tt.name, got.Sub(at(0)), at(tt.want).Sub(at(0)))
		}
	}
}

// PR6: a period counts from start to start; a slow probe delays the next.
func TestFollowing(t *testing.T) {
	spec := &corev1.Probe{PeriodSeconds: 2}
	for _, tt := range []struct{ start, end, want float64 }{{0, 0.1, 2}, {0, 1.9, 2}, {0, 2, 2}, {0, 2.5, 2.5}} {
		if got := following(at(tt.start), at(tt.end), spec); !got.Equal(at(tt.want)) {
			t.Errorf("from %v to %v: %v", tt.start, tt.end, got.Sub(at(0)))
		}
	}
}

// PR8: the state changes after as many equal results in a row.
func TestTally(t *testing.T) {
	for _, tt := range []struct {
		success, failure int32
		results, want    string // of each result: s, f, or . below the threshold
	}{
		{1, 3, "sffsfff", "s..s..f"},
		{1, 1, "sfs", "sfs"},
		{2, 2, "ssfsffss", ".s...f.s"},
		{1, 3, "ffffsf", "..ffs."},
		{0, 0, "sf", "sf"}, // without defaults
	} {
		spec := &corev1.Probe{SuccessThreshold: tt.success, FailureThreshold: tt.failure}
		var got strings.Builder
		var counted tally
		for _, r := range tt.results {
			state, reached := counted.add(r == 's', spec)
			switch {
			case !reached:
				got.WriteByte('.')
			case state == cycle.ProbeSuccess:
				got.WriteByte('s')
			case state == cycle.ProbeFailure:
				got.WriteByte('f')
			}
		}
		if got.String() != tt.want {
			t.Errorf("%d/%d %s: %s, want %s", tt.success, tt.failure, tt.results, &got, tt.want)
		}
	}
}

// PR7: probes of many pods whose times coincide are moved apart by up to 5 % of the period.
func TestApart(t *testing.T) {
	one, other := &pod{uid: "1"}, &pod{uid: "2"}
	spec := &corev1.Probe{PeriodSeconds: 10}
	var s schedule
	s.waiting.Set(&probe{pod: one}, at(5))
	for _, tt := range []struct {
		pod       *pod
		due, want float64
	}{
		{other, 5, 5.25},      // half of 5 % of 10 s
		{other, 5.019, 5.269}, // near enough
		{other, 5.02, 5.02},   // not the same instant
		{one, 5, 5},           // the same pod's
	} {
		if got := s.apart(&probe{pod: tt.pod, spec: spec}, at(tt.due), 0.5); !got.Equal(at(tt.want)) {
			t.Errorf("%v of pod %s: %v, want %v", tt.due, tt.pod.uid, got.Sub(at(0)), tt.want)
		}
	}
}

func TestSchedule(t *testing.T) {
	var s schedule
	if due, any := s.waiting.Next(); any {
		t.Errorf("an empty schedule has %v", due)
	}
	var list []*probe
	for _, seconds := range []float64{7, 3, 9, 1, 5} {
		p := &probe{}
		s.waiting.Set(p, at(seconds))
		list = append(list, p)
	}
	s.waiting.Set(list[0], at(2)) // earlier than it was
	s.drop(list[4])
	s.drop(list[4])
	if due, any := s.waiting.Next(); !any || !due.Equal(at(1)) {
		t.Errorf("next: %v", due)
	}
	s.collect(at(0.999))
	if len(s.due) != 0 {
		t.Errorf("due before the time: %d", len(s.due))
	}
	s.collect(at(3))
	if want := []*probe{list[3], list[0], list[1]}; !slices.Equal(s.due, want) {
		t.Errorf("due: %v", s.due)
	}
	s.drop(list[0])
	if want := []*probe{list[3], list[1]}; !slices.Equal(s.due, want) {
		t.Errorf("due after one was dropped: %v", s.due)
	}
	if due, any := s.waiting.Next(); !any || !due.Equal(at(9)) {
		t.Errorf("next: %v", due)
	}
}
