package recovery

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/node"
)

// life is the part of a pod's life that a kill falls into.
type life struct {
	name string // of the RPC
	// prepare makes what the RPC needs.
	prepare func(s *stage) error
	// call sends the RPC. Its error counts only if nobody is killed.
	call func(s *stage) error
	// judge looks at what became of it after a restart, and asks again. It leaves nothing but pods.
	judge func(s *stage)
}

// stage is what one point plays on.
type stage struct {
	*machine
	handler string
	nth     int  // of the points of this life
	idle    bool // nobody will be killed: the RPC is to end by itself
	config  *cri.PodSandboxConfig
	pod     *pod
	c, d, e *container
	ref     string    // an image's
	limits  [2]string // of the kernel, before and after
	called  error     // what the RPC answered

	announce string // file that names the daemon which is started
}

// lifePoints is a life with the number of points in it for each handler.
type lifePoints struct {
	life
	points map[string]int
}

// point is one kill.
type point struct {
	life    life
	handler string
	nth, of int
	step    int // with -every
}

func (p point) String() string {
	return fmt.Sprintf("%s/%s/%d", p.handler, p.life.name, p.nth+1)
}

// dice are the point's own: the same for one seed.
func (p point) dice() *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, p)
	return rand.New(rand.NewPCG(*seed, h.Sum64()))
}

// verdict is what is printed of a point.
type verdict struct {
	point    point
	step     int
	report   killer.Report
	took     time.Duration
	problems []string
}

// where says before what the victim was killed.
func (v verdict) where(m *machine) string {
	if !v.report.Killed || len(v.report.Steps) == 0 {
		return fmt.Sprintf("after all of its %d steps", len(v.report.Steps))
	}
	last := v.report.Steps[len(v.report.Steps)-1]
	for _, dir := range []string{m.Root, m.State} {
		last.On = strings.ReplaceAll(last.On, dir, filepath.Base(dir))
	}
	return fmt.Sprintf("before step %d, %v", v.step, last)
}

// tally counts the points of a test, for the last line.
type tally struct {
	mu         sync.Mutex
	ran, clean int
}

// tell prints a point's verdict, which is a failure if there are problems.
func (c *tally) tell(t *testing.T, m *machine, victim victim, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran++
	said := "clean"
	if len(v.problems) > 0 {
		said = "NOT CLEAN"
	} else {
		c.clean++
	}
	fmt.Printf("seed %d  %-34s  %s killed %s  (%.1fs): %s\n", *seed, v.point, victim.name, v.where(m), v.took.Seconds(), said)
	if len(v.problems) > 0 {
		t.Errorf("seed %d, %v, %s killed %s:\n%s", *seed, v.point, victim.name, v.where(m), strings.Join(v.problems, "\n"))
	}
}

// victim is who is killed.
type victim struct {
	name string
	// order says who it is.
	order func(s *stage) killer.Order
	// dead makes sure that it is dead.
	dead func(s *stage)
	// after brings the node to where the point is judged.
	after func(s *stage, dice *rand.Rand) error
}

// play kills the victim before the step of the RPC that the point's dice choose, and judges.
func (m *machine) play(p point, v victim, steps int) verdict {
	begun := time.Now()
	out := verdict{point: p}
	m.problem = func(format string, args ...any) { out.problems = append(out.problems, fmt.Sprintf(format, args...)) }
	dice := p.dice()
	out.step = 1 + int((float64(p.nth)+dice.Float64())/float64(p.of)*float64(steps))
	if *every {
		out.step = p.step
	}
	s := &stage{machine: m, handler: p.handler, nth: p.nth}
	mark, _ := os.Stat(m.LogFile)
	if err := p.life.prepare(s); err != nil {
		m.problem("prepare: %v", err)
	} else if err := m.killDuring(s, p, v, &out); err != nil {
		m.problem("%v", err)
	} else if err := v.after(s, dice); err != nil {
		m.problem("%v", err)
	} else {
		m.undisturbed()
		m.sound("before anything is asked for again")
		p.life.judge(s)
	}
	if len(out.problems) > 0 {
		m.shimsSaid()
	}
	m.end()
	if len(out.problems) > 0 {
		out.problems = append(out.problems, "the daemon said:\n"+m.saidSince(mark))
	}
	out.took = time.Since(begun)
	return out
}

// answerBound is how long an RPC may take to be answered when the shim that it needs has died:
// longer than any shim is waited for.
const answerBound = 2 * time.Minute

// killDuring sends the RPC and has the victim killed meanwhile.
func (m *machine) killDuring(s *stage, p point, v victim, out *verdict) error {
	order := v.order(s)
	order.At = out.step
	k, err := killer.Send(order)
	if err != nil {
		return err
	}
	answered := make(chan error, 1)
	m.beside(func() { answered <- p.life.call(s) })
	over := false
	select {
	case s.called = <-answered:
		over = true
	case <-k.Ended():
	case <-time.After(node.Slow(3 * time.Second)): // it waits for something
	}
	v.dead(s) // if nobody has killed it yet
	if !over {
		select {
		case s.called = <-answered:
		case <-time.After(node.Slow(answerBound)):
			m.problem("no answer within %v of the kill", node.Slow(answerBound))
		}
	}
	out.report, err = k.Leave()
	return err
}

// steps is how many steps the RPC takes when nobody is killed.
func (m *machine) steps(p point, v victim) (int, error) {
	var problems []string
	m.problem = func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	s := &stage{machine: m, handler: p.handler, nth: p.nth, idle: true}
	if err := p.life.prepare(s); err != nil {
		return 0, fmt.Errorf("%v: prepare: %w", p, err)
	}
	k, err := killer.Send(v.order(s))
	if err != nil {
		return 0, err
	}
	err = p.life.call(s)
	report, lerr := k.Leave()
	if err != nil || lerr != nil {
		return 0, fmt.Errorf("%v without a kill: %v, %v", p, err, lerr)
	}
	m.end()
	if len(problems) > 0 {
		return 0, fmt.Errorf("%v without a kill:\n%s", p, strings.Join(problems, "\n"))
	}
	return len(report.Steps), nil
}

// end takes away the pods of a point and wants nothing left of them.
func (m *machine) end() {
	if !m.Alive() {
		return
	}
	m.sound("with the pod")
	list, err := m.ListPodSandbox(m.ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		m.problem("list pods: %v", err)
	}
	for _, item := range list.GetItems() {
		if strings.HasPrefix(item.GetMetadata().GetName(), "stays-") {
			continue
		}
		p := &pod{m: m, id: item.GetId()}
		if err := p.stop(); err != nil {
			m.problem("stop the pod: %v", err)
		}
		if err := p.remove(); err != nil {
			m.problem("remove the pod: %v", err)
		}
	}
	m.sound("without the pod")
	m.clean()
}

// shimsSaid adds to the problems what the shims have said, whose logs go with their pods.
func (m *machine) shimsSaid() {
	logs, _ := filepath.Glob(filepath.Join(m.State, "sandboxes", "*", "shim.log"))
	for _, log := range logs {
		if text, err := os.ReadFile(log); err == nil && len(text) > 0 {
			m.problem("%s:\n%s", log, text)
		}
	}
}

// saidSince is what the daemon has said since a moment.
func (m *machine) saidSince(then os.FileInfo) string {
	log := m.DaemonLog()
	if then != nil && int(then.Size()) < len(log) {
		log = log[then.Size():]
	}
	return log
}
