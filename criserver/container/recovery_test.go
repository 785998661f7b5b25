package container

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/criserver/container/build"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
)

// What is made of a container that is Created on record when neither server nor shim can say more.
func TestAdoptCreatedWithoutItsShim(t *testing.T) {
	begun := time.Now().Add(-time.Minute).Round(time.Second)
	ended := begun.Add(time.Second)
	for name, c := range map[string]struct {
		begun  bool
		config bool // its bundle is there
		reboot bool
		exit   *api.Exit
		phase  state.Phase
		reason string
		start  time.Time // zero = when it ended
	}{
		"never started":                {config: true, phase: state.Created},
		"start lost by a power cut":    {config: true, reboot: true, phase: state.Exited, reason: reasonUnknown},
		"never started, restart":       {phase: state.Exited, reason: reasonUnknown},
		"start begun":                  {begun: true, config: true, phase: state.Exited, reason: reasonUnknown, start: begun},
		"start begun, restart":         {begun: true, phase: state.Exited, reason: reasonUnknown, start: begun},
		"start begun, end known":       {begun: true, config: true, exit: &api.Exit{Code: 0, At: ended}, phase: state.Exited, reason: reasonCompleted, start: begun},
		"start not on disk, end known": {config: true, exit: &api.Exit{Code: 3, At: ended}, phase: state.Exited, reason: reasonError, start: ended},
	} {
		t.Run(name, func(t *testing.T) {
			m := records(t)
			living := m.put(t, "c", state.Created)
			if c.begun {
				if _, err := m.records.Update("c", func(r state.Container) (state.Container, error) {
					r.StartAttemptedAt = begun
					return r, nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			sb := &sandbox.Sandbox{Folders: sandbox.Folders{Dir: t.TempDir()}}
			dir := filepath.Join(sb.Dir, "c")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.config {
				if err := build.WriteConfig(dir, []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
			if c.exit != nil {
				if err := bundle.WriteExit(dir, *c.exit); err != nil {
					t.Fatal(err)
				}
			}
			rec, err := m.records.Get("c")
			if err != nil {
				t.Fatal(err)
			}
			adoption{Manager: m, sandbox: sb, rebooted: c.reboot}.ended(living, rec)
			got, err := m.records.Get("c")
			if err != nil || got.Phase != c.phase || got.Reason != c.reason {
				t.Fatalf("%s, reason %q, %v; want %s, %q", got.Phase, got.Reason, err, c.phase, c.reason)
			}
			want := c.start
			if want.IsZero() {
				want = got.FinishedAt
			}
			if !got.StartedAt.Equal(want) {
				t.Errorf("started %v, want %v", got.StartedAt, want)
			}
		})
	}
}

// One that may run is Unknown while its shim is silent, and has the time of its start.
func TestSuspectWhatMayRun(t *testing.T) {
	m := records(t)
	c := m.put(t, "c", state.Created)
	if err := <-c.recordStart(); err != nil {
		t.Fatal(err)
	}
	rec, err := m.records.Get("c")
	if err != nil || !mayRun(rec) {
		t.Fatalf("%+v, %v: it may run", rec, err)
	}
	if err := c.suspect(rec); err != nil {
		t.Fatal(err)
	}
	rec, err = m.records.Get("c")
	if err != nil || rec.Phase != state.Unknown || rec.StartedAt.IsZero() {
		t.Errorf("%s since %v, %v", rec.Phase, rec.StartedAt, err)
	}
	c.store()
	if again, err := m.records.Get("c"); err != nil || again.Phase != state.Unknown {
		t.Errorf("%s, %v", again.Phase, err)
	}
}
