package recovery

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/node"
)

// startLives are what a start may find: what another server had begun when it died. 8 points more.
var startLives = []lifePoints{
	{life{"start after half a RunPodSandbox", prepareHalfRun, callLaunch, unanswered(judgeRun)}, map[string]int{"runc": 2, "wasm": 2}},
	{life{"start after half a RemovePodSandbox", prepareHalfRemove, callLaunch, unanswered(judgeRemovePod)}, map[string]int{"runc": 2, "wasm": 2}},
}

// deadShimLives are what it may find besides where each pod has a shim of its own: 4 points more.
var deadShimLives = []lifePoints{
	{life{"start after a shim's death", prepareDeadShim, callLaunch, judgeShim}, map[string]int{"runc": 2, "wasm": 2}},
}

// The daemon is killed while it starts and cleans up what the one before it left; a third one
// cleans up after both.
func TestKillStart(t *testing.T) {
	run(t, startingDaemon(), embedded, startLives)
	run(t, startingDaemon(), ownShims, deadShimLives)
}

func startingDaemon() victim {
	return victim{
		name: "starting daemon",
		order: func(s *stage) killer.Order {
			s.announce = filepath.Join(world.folder, fmt.Sprintf("start-%d", node.Serial()))
			return killer.Order{Await: s.announce}
		},
		dead: func(s *stage) { s.kill() },
		after: func(s *stage, dice *rand.Rand) error {
			return errors.Join(os.Remove(s.announce), s.restart())
		},
	}
}

// half has an RPC killed before one of its steps, which later points choose further on.
func (s *stage) half(first, apart int, call func(*stage) error) error {
	k, err := killer.Send(killer.Order{PID: s.DaemonPID(), At: first + apart*s.nth})
	if err != nil {
		return err
	}
	answered := make(chan error, 1)
	s.beside(func() { answered <- call(s) })
	select {
	case err := <-answered:
		answered <- err
	case <-k.Ended():
	case <-time.After(node.Slow(5 * time.Second)):
	}
	s.kill()
	<-answered
	_, err = k.Leave()
	return err
}

func prepareHalfRun(s *stage) error {
	if err := prepareRun(s); err != nil {
		return err
	}
	return s.half(40, 45, callRun)
}

func prepareHalfRemove(s *stage) error {
	if err := preparePod(s); err != nil {
		return err
	}
	return s.half(15, 90, callRemovePod)
}

func prepareDeadShim(s *stage) error {
	if err := preparePod(s); err != nil {
		return err
	}
	s.kill()
	s.killShim()
	return nil
}

// callLaunch starts a daemon and tells the killer which it is.
func callLaunch(s *stage) error {
	if err := s.Launch(); err != nil {
		return err
	}
	if err := os.WriteFile(s.announce+".new", []byte(strconv.Itoa(s.DaemonPID())), 0o600); err != nil {
		return err
	}
	if err := os.Rename(s.announce+".new", s.announce); err != nil {
		return err
	}
	return s.AwaitReady(s.ctx)
}

// unanswered judges an RPC that got no answer, whatever became of the start.
func unanswered(judge func(*stage)) func(*stage) {
	return func(s *stage) {
		s.called = errors.New("the server died")
		judge(s)
	}
}
