package recovery

import (
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/killer"
)

// recordSyncs are the waits for the disk of a pod's life for its records: one each when the pod is
// there, when its container is made and has ended, and when the pod is removed.
const recordSyncs = 4

// The life of a pod waits for the disk as seldom as recordSyncs says, and once more if its
// container is removed before it; never for the roots of its containers. That holds for the first
// pod too, and for more pods than there are empty files for records.
func TestSyncsOfALife(t *testing.T) {
	alone(t, embedded, func(m *machine) {
		m.before = m.look()
		for n := range 40 {
			handler, first, want := []string{"runc", "wasm"}[n%2], n/2%2 == 1, recordSyncs
			if first {
				want++
			}
			k, err := killer.Send(killer.Order{PID: m.DaemonPID()})
			if err != nil {
				t.Error(err)
				return
			}
			err = m.life(handler, first)
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
			if records != want || len(others) > 0 {
				t.Errorf("life %d, %s, the container is removed first: %t: %d syncs of records, and %v; all steps:\n%v", n, handler, first, records, others, report.Steps)
				break
			}
		}
		m.end()
	})
}

// life is that of a pod whose container runs until the pod is stopped.
func (m *machine) life(handler string, first bool) error {
	p, err := m.run(handler, m.podConfig("life", shape(0)))
	if err != nil {
		return err
	}
	c, err := p.begin(counts(handler))
	if err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return err
	}
	if first {
		if err := c.remove(); err != nil {
			return err
		}
	}
	return p.remove()
}
