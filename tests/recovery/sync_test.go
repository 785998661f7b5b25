package recovery

import (
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/killer"
)

// recordSyncs are the waits for the disk of a pod's life for its records: two each when the pod is
// there and when its container is made, of a file and of its name, and one each when the container
// has ended, and when the container and the pod are removed.
const recordSyncs = 7

// The life of a pod waits for the disk as seldom as recordSyncs says, and never for the roots of
// its containers.
func TestSyncsOfALife(t *testing.T) {
	alone(t, embedded, func(m *machine) {
		m.before = m.look()
		for _, handler := range []string{"runc", "wasm"} {
			k, err := killer.Send(killer.Order{PID: m.DaemonPID()})
			if err != nil {
				t.Error(err)
				return
			}
			err = m.life(handler)
			report, lerr := k.Leave()
			if err != nil || lerr != nil {
				t.Errorf("%s: %v, %v", handler, err, lerr)
			}
			records, others := 0, []string{}
			for _, s := range report.Steps {
				switch {
				case !strings.HasSuffix(s.Call, "sync"):
				case strings.Contains(s.On, "/state/sandboxes"), strings.Contains(s.On, "/state/containers"):
					records++
				default:
					others = append(others, s.String())
				}
			}
			if records != recordSyncs || len(others) > 0 {
				t.Errorf("%s: %d syncs of records, and %v; all steps:\n%v", handler, records, others, report.Steps)
			}
		}
		m.end()
	})
}

// life is that of a pod whose container runs until the pod is stopped.
func (m *machine) life(handler string) error {
	p, err := m.run(handler, m.podConfig("life", shape(0)))
	if err != nil {
		return err
	}
	if _, err := p.begin(counts(handler)); err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return err
	}
	return p.remove()
}
