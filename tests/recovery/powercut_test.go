package recovery

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/node"
)

// cuts is how often the power is cut.
const cuts = 6

// TestPowerCut cuts the power of a node at moments of pulls and of the life of pods. From what had
// reached the disk, the next daemon starts and is ready, its images are whole, what was running is
// over, and pulls and pods go on.
func TestPowerCut(t *testing.T) {
	n := cuts
	if testing.Short() {
		n = 2
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	alone(t, onDisk, func(m *machine) {
		ids := map[string]string{}
		for round := range n {
			if err := m.powerCut(time.Duration(random.IntN(2500))*time.Millisecond, ids); err != nil {
				t.Errorf("cut %d: %v\n%s", round, err, m.DaemonLog())
				return
			}
			if t.Failed() {
				t.Errorf("at cut %d", round)
				return
			}
		}
	})
}

// powerCut lets the node work for a while, cuts its power, starts it again and looks at it. ids are
// the images' ids.
func (m *machine) powerCut(after time.Duration, ids map[string]string) error {
	if err := m.disk.Sync(); err != nil { // the configuration, and what the round before has looked at
		return err
	}
	var over atomic.Bool
	ended := make(chan struct{})
	m.beside(func() {
		defer close(ended)
		for !over.Load() {
			m.work()
		}
	})
	time.Sleep(after)
	if err := m.cut(func() {
		over.Store(true)
		m.kill()
		<-ended
	}); err != nil {
		return err
	}
	return m.afterPowerCut(ids)
}

// cut cuts the power at this moment, has the daemon killed, and starts the node again from what had
// reached the disk.
func (m *machine) cut(kill func()) error {
	if err := unix.Kill(m.DaemonPID(), unix.SIGSTOP); err != nil {
		return err
	}
	copied, err := m.disk.Cut()
	if err != nil {
		return err
	}
	kill()
	if err := m.reboot(); err != nil {
		return err
	}
	if err := m.disk.Exchange(copied); err != nil {
		return err
	}
	m.note()
	// The folder of the state is in memory on a real machine.
	if err := os.RemoveAll(m.State); err != nil {
		return err
	}
	if err := m.backdate(); err != nil {
		return err
	}
	return m.restart()
}

// The daemon is killed when it has written how a container ended, just before the sync. The next
// one shows the end, and a power cut does not take it back: whether the shim still has the task, or
// has exited too.
func TestEndIsDurableBeforeItIsShown(t *testing.T) {
	alone(t, ownDisk, func(m *machine) {
		for _, handler := range []string{"runc", "wasm"} {
			for _, alive := range []bool{true, false} {
				if err := m.endBeforeCut(handler, alive); err != nil {
					t.Errorf("%s, the shim lives: %t: %v", handler, alive, err)
					return
				}
			}
		}
	})
}

func (m *machine) endBeforeCut(handler string, alive bool) error {
	p, err := m.run(handler, m.podConfig("shown", shape(1)))
	if err != nil {
		return err
	}
	c, err := p.begin(idles(handler))
	if err != nil {
		return err
	}
	now, err := c.status()
	if err != nil {
		return err
	}
	if err := m.disk.Sync(); err != nil {
		return err
	}
	file, err := m.RecordFile("containers", c.id)
	if err != nil {
		return err
	}
	sync := killer.Step{Call: "fdatasync", On: file}
	k, err := killer.Send(killer.Order{PID: m.DaemonPID(), Before: sync.String()})
	if err != nil {
		return err
	}
	if err := unix.Kill(now.pid, unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-k.Ended():
	case <-time.After(node.Slow(node.Patience)):
	}
	report, err := k.Leave()
	if err != nil || !report.Killed {
		return fmt.Errorf("the daemon was not killed before %q: %v, %v", sync, report.Steps, err)
	}
	m.kill()
	if !alive {
		(&stage{machine: m, handler: handler, pod: p}).killShim()
	}
	if report, err = m.watchStart(); err != nil {
		return err
	}
	if !slices.ContainsFunc(report.Steps, func(s killer.Step) bool { return s.On == sync.On && strings.HasSuffix(s.Call, "sync") }) {
		m.problem("the end is shown before it is durable; the start did %v", report.Steps)
	}
	c.ended(137, "Error")
	if err := m.cut(m.kill); err != nil {
		return err
	}
	c.ended(137, "Error")
	return p.remove()
}

// watchStart starts the daemon and returns what it did until it was ready.
func (m *machine) watchStart() (killer.Report, error) {
	if err := m.Launch(); err != nil {
		return killer.Report{}, err
	}
	if err := unix.Kill(m.DaemonPID(), unix.SIGSTOP); err != nil {
		return killer.Report{}, err
	}
	k, err := killer.Send(killer.Order{PID: m.DaemonPID()})
	if err := errors.Join(err, unix.Kill(m.DaemonPID(), unix.SIGCONT)); err != nil {
		return killer.Report{}, err
	}
	err = m.AwaitReady(m.ctx)
	report, lerr := k.Leave()
	return report, errors.Join(err, lerr)
}

// work is a while in the life of a node. Any of it may be cut off.
func (m *machine) work() {
	for i, ref := range []string{world.busybox, world.guest} {
		handler := []string{"runc", "wasm"}[i]
		_, _ = m.PullImage(m.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
		if p, err := m.run(handler, m.podConfig("cut", shape(i))); err == nil {
			if c, err := p.begin(job(handler)); err == nil {
				_ = c.says("three")
			}
			_, _ = p.begin(counts(handler))
			if node.Serial()%2 == 0 {
				_ = p.remove()
				_, _ = m.RemoveImage(m.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: ref}})
			}
		}
	}
}

// afterPowerCut looks at a node that was started again.
func (m *machine) afterPowerCut(ids map[string]string) error {
	m.sound("after a power cut")
	check := exec.Command(filepath.Join(world.bin, "sunaba"), "images", "check", "--root", m.Root, "--state", m.State, "--config", m.ConfigFile)
	if out, err := check.CombinedOutput(); err != nil {
		m.problem("images check: %v\n%s", err, out)
	}
	pods, err := m.ListPodSandbox(m.ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, p := range pods.GetItems() {
		if p.GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
			m.problem("pod %s is %v after a restart of the machine", p.GetId(), p.GetState())
		}
	}
	if err := m.RemovePods(m.ctx); err != nil {
		return err
	}
	for i, ref := range []string{world.busybox, world.guest} {
		answer, err := m.PullImage(m.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
		if err != nil {
			return fmt.Errorf("pull %q: %w", ref, err)
		}
		if ids[ref] == "" {
			ids[ref] = answer.GetImageRef()
		}
		if ids[ref] != answer.GetImageRef() {
			m.problem("%s is %s, it was %s", ref, answer.GetImageRef(), ids[ref])
		}
		handler := []string{"runc", "wasm"}[i]
		p, err := m.run(handler, m.podConfig("after", shape(i)))
		if err != nil {
			return err
		}
		p.works()
		if err := p.remove(); err != nil {
			return err
		}
	}
	m.sound("after work")
	return nil
}
