package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/client"
)

func TestEngines(t *testing.T) {
	asked := 0
	var answer client.Details
	var failure error
	ask := func(context.Context, string) (client.Details, error) {
		asked++
		return answer, failure
	}
	all := func(string) bool { return true }
	for _, c := range []struct {
		name   string
		d      client.Details
		err    error
		engine bool
		kept   bool
	}{
		{"guest", client.Details{PID: 7, LinearBase: 4096, LinearSize: 8192, EngineCPU: time.Second}, nil, true, true},
		{"guest that begins", client.Details{PID: 7, StartedAt: time.Now()}, nil, false, false},
		{"Linux container", client.Details{PID: 7, StartedAt: time.Now().Add(-2 * settledAfter)}, nil, false, true},
		{"not started", client.Details{PID: 7}, nil, false, false},
		{"ended", client.Details{PID: 7, LinearSize: 1, Exit: &client.Exit{}}, nil, false, false},
		{"shim is gone", client.Details{}, errors.New("gone"), false, false},
	} {
		e := newEngines()
		asked, answer, failure = 0, c.d, c.err
		for range 3 {
			part, ok := e.of(t.Context(), "id", ask, all)
			if ok != c.engine {
				t.Errorf("%s: engine %t, want %t", c.name, ok, c.engine)
			}
			if ok && (part.Name != "engine" || part.Container != "id" || part.PID != 7 || part.LinearBase != 4096 || part.LinearSize != 8192 || part.CPU != time.Second) {
				t.Errorf("%s: %+v", c.name, part)
			}
		}
		if want := map[bool]int{true: 1, false: 3}[c.kept]; asked != want {
			t.Errorf("%s: asked %d times, want %d", c.name, asked, want)
		}
	}

	// Containers that are gone do not stay in memory.
	e := newEngines()
	answer, failure = client.Details{PID: 7, LinearSize: 1}, nil
	for i := range 10 * firstSweep {
		last := fmt.Sprint(i)
		e.of(t.Context(), last, ask, func(id string) bool { return id == last })
	}
	if len(e.known) > firstSweep {
		t.Errorf("%d containers are remembered, at most %d are there", len(e.known), firstSweep)
	}
}
