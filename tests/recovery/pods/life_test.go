package pods

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/node"
)

// The stages of a life, in their order.
const (
	start = "start"
	crash = "crash"
	edit  = "edit"
	end   = "end"
	// again is a daemon that starts while the pods live: no stage, but it has steps too.
	again = "start again"
)

var stages = []string{start, crash, edit, end}

// life is one life of the pods of the manifest.
type life struct {
	*machine
	nth       int            // from 1 on; 0 if nobody is killed
	steps     map[string]int // of the stages, without a kill: written by life 0
	dice      *rand.Rand
	journal   string // folder
	watch     *watch
	now       string         // the stage
	deaths    int            // of daemons
	deathIn   map[string]int // the same, by stage
	killed    []string       // before what
	wrong     []string
	names     []string // of the stages
	restartIn string   // the stage after which the steps of a daemon that starts are counted
	base      int32    // restart count of the app when a stage began
	changed   float64  // when the edit was written, in seconds since the boot
}

func (l *life) problem(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// part is a stage of a life.
type part struct {
	name string
	act  func() error
	// judge looks at what became of it after a kill and a restart, and has done what was cut off.
	// nil if the daemon does that by itself.
	judge func() error
	goal  func() bool
}

// live goes through a life of pods of a folder's manifests.
func (m *machine) live(t *testing.T, nth int, steps map[string]int) bool {
	return m.goThrough(t, "life", nth, steps, (*life).play)
}

// goThrough goes through a life and says how it went.
func (m *machine) goThrough(t *testing.T, kind string, nth int, steps map[string]int, play func(*life)) bool {
	begun := time.Now()
	l := &life{machine: m, nth: nth, steps: steps, deathIn: map[string]int{}, dice: rand.New(rand.NewPCG(*seed, uint64(nth)))}
	mark := len(m.DaemonLog())
	var err error
	if l.journal, err = os.MkdirTemp(world.folder, "journal-"); err != nil {
		t.Error(err)
		return false
	}
	l.watch = newWatch(l.machine)
	play(l)
	l.wrong = append(l.wrong, l.watch.end()...)
	name := fmt.Sprintf("seed %d, %s %d", *seed, kind, nth)
	if len(l.wrong) == 0 {
		fmt.Printf("%s: %.1fs, killed %s: clean\n", name, time.Since(begun).Seconds(), strings.Join(l.killed, "; "))
		return true
	}
	journal, _ := os.ReadFile(filepath.Join(l.journal, "web"))
	said := m.DaemonLog()
	t.Errorf("%s, killed %s:\n%s\nthe journal:\n%s\nthe daemon said:\n%s", name, strings.Join(l.killed, "; "), strings.Join(l.wrong, "\n"), journal, said[min(mark, len(said)):])
	return false
}

func (l *life) play() {
	l.names, l.restartIn = stages, crash
	for _, s := range []part{
		{name: start, act: func() error { return l.write("one", world.first) }, goal: l.started},
		{name: crash, act: func() error { return nil }, goal: func() bool { return l.restarts("web", "app") >= l.base+2 }},
		{name: edit, act: func() error {
			l.changed = uptime()
			return l.write("two", world.second)
		}, goal: l.edited},
		{name: end, act: func() error { return os.Remove(l.manifest()) }, goal: l.gone},
	} {
		l.base = max(l.restarts("web", "app"), 0)
		if !l.stage(s) {
			return
		}
		if s.name == edit {
			l.judgePods()
			if err := l.Sound(); err != nil {
				l.problem("with the pods: %v", err)
			}
		}
	}
	l.judgeJournal()
	l.nothing()
}

// nothing wants nothing left of the pods, which have been removed.
func (l *life) nothing() {
	if err := l.Sound(); err != nil {
		l.problem("without the pods: %v", err)
	}
	if left, err := l.Left(); err != nil || len(left) > 0 {
		l.problem("left over, %v:\n%s", err, strings.Join(left, "\n"))
	}
}

// stage goes through one stage, with its points. It says whether the goal was reached.
func (l *life) stage(p part) bool {
	name := p.name
	l.now = name
	order := killer.Order{PID: l.DaemonPID()}
	until, hook := p.goal, l.hook(name)
	switch seen := l.hooks(hook); {
	case hook != "":
		until = func() bool { return l.hooks(hook) > seen }
	case l.nth > 0:
		order.At = 1 + l.dice.IntN(l.steps[name]*9/10) // the last are not those of each life
	}
	k, err := killer.Send(order)
	if err == nil {
		err = p.act()
	}
	if err != nil {
		l.problem("%s: %v", name, err)
		return false
	}
	reached := within(k.Ended(), until)
	if l.nth == 0 {
		return l.measure(name, k, reached)
	}
	if err = l.kill(name, k); err == nil && l.names[l.nth%len(l.names)] == name {
		err = l.killStart()
	}
	if err == nil {
		time.Sleep(time.Duration(l.dice.IntN(200)) * time.Millisecond) // what runs goes on without a daemon
		err = l.StartDaemon(l.ctx)
	}
	if err == nil && p.judge != nil {
		err = p.judge()
	}
	if err != nil {
		l.problem("%s: %v", name, err)
		return false
	}
	if !within(nil, p.goal) {
		l.problem("%s: it is not over %v after the kill: %s", name, node.Patience, l.waits())
		return false
	}
	return true
}

// hook is the hook during which the daemon is killed in a stage, "" if it is killed before a step.
func (l *life) hook(name string) string {
	if l.nth%len(stages) != 2 {
		return ""
	}
	return map[string]string{start: "poststart", edit: "prestop", end: "prestop"}[name]
}

// hooks is how often a hook has run, or runs.
func (l *life) hooks(hook string) int {
	n := 0
	for _, s := range l.runs("side") {
		n += s.times(hook)
	}
	return n
}

// pause is that between two looks at a pod. Each look is a step of the daemon's, the answer.
const pause = 50 * time.Millisecond

// within asks until the goal is reached or, before that, dead is closed.
func within(dead <-chan struct{}, goal func() bool) bool {
	late := time.After(node.Slow(node.Patience))
	for !goal() {
		select {
		case <-dead:
			return false
		case <-late:
			return false
		case <-time.After(pause):
		}
	}
	return true
}

// measure counts the steps of a stage, and of a daemon that starts.
func (l *life) measure(name string, k *killer.Killer, reached bool) bool {
	report, err := k.Leave()
	if err != nil || !reached {
		l.problem("%s: it is not over after %v: %v, %s", name, node.Patience, err, l.waits())
		return false
	}
	l.steps[name] = len(report.Steps)
	if name != l.restartIn {
		return true
	}
	l.deaths++
	err = l.SignalDaemon(unix.SIGKILL)
	if err == nil {
		report, err = l.launch(0)
	}
	if err != nil {
		l.problem("%s: %v", again, err)
		return false
	}
	l.steps[again] = len(report.Steps)
	return true
}

// kill makes sure that the daemon is dead, and notes before what it died.
func (l *life) kill(name string, k *killer.Killer) error {
	if err := l.SignalDaemon(unix.SIGKILL); err != nil {
		return err
	}
	report, err := k.Leave()
	l.note(name, report)
	return err
}

// note notes a death.
func (l *life) note(name string, report killer.Report) {
	l.deaths++
	l.deathIn[l.now]++
	n := len(report.Steps)
	switch {
	case l.hook(name) != "":
		l.killed = append(l.killed, name+" during "+l.hook(name))
		return
	case !report.Killed || n == 0:
		l.killed = append(l.killed, fmt.Sprintf("%s after its %d steps", name, n))
		return
	}
	last := report.Steps[n-1]
	last.On = strings.ReplaceAll(last.On, l.Options.Dir, "")
	l.killed = append(l.killed, fmt.Sprintf("%s before step %d, %v", name, n, last))
}

// killStart starts a daemon and kills it before it is ready, or soon after.
func (l *life) killStart() error {
	report, err := l.launch(1 + l.dice.IntN(l.steps[again]))
	l.note(again, report)
	if err != nil {
		return err
	}
	return l.SignalDaemon(unix.SIGKILL)
}

// settles is how long a daemon that starts is watched after it is ready.
const settles = 500 * time.Millisecond

// launch starts a daemon that is killed before a step of its start, 0 for none.
func (l *life) launch(at int) (killer.Report, error) {
	announce := filepath.Join(world.folder, fmt.Sprintf("start-%d", node.Serial()))
	defer os.Remove(announce)
	k, err := killer.Send(killer.Order{Await: announce, At: at})
	if err != nil {
		return killer.Report{}, err
	}
	if err = l.Launch(); err == nil {
		err = os.WriteFile(announce+".new", []byte(strconv.Itoa(l.DaemonPID())), 0o600)
	}
	if err == nil {
		err = os.Rename(announce+".new", announce)
	}
	if err != nil {
		return killer.Report{}, err
	}
	if err = l.AwaitReady(l.ctx); err == nil {
		select {
		case <-k.Ended():
		case <-time.After(node.Slow(settles)):
		}
	} else if at > 0 {
		err = nil // it was killed before
	}
	report, lerr := k.Leave()
	if err == nil {
		err = lerr
	}
	return report, err
}

// --- what is wanted, and whether it is there
// ---------------------------------------------------------------------

func (m *machine) manifest() string { return filepath.Join(m.Options.Dir, "manifests", "pods.yaml") }

// write puts the manifest in its place, whole.
func (l *life) write(version, side string) error {
	temp := filepath.Join(l.journal, "pods.yaml")
	if err := os.WriteFile(temp, []byte(manifestOf(l.journal, version, side)), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, l.manifest())
}

// uptime is how long the machine runs, in seconds.
func uptime() float64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every kernel has it
	}
	return float64(now.Nano()) / 1e9
}

func (m *machine) podNamed(name string) (corev1.Pod, bool) {
	list, err := m.list()
	if err != nil {
		return corev1.Pod{}, false
	}
	for _, p := range list {
		if p.Name == name {
			return p, true
		}
	}
	return corev1.Pod{}, false
}

func (m *machine) list() ([]corev1.Pod, error) {
	return api.Objects[corev1.Pod](m.ctx, m.client, m.resource, api.Query{})
}

// statuses are those of all containers of a pod.
func statuses(p corev1.Pod) []corev1.ContainerStatus {
	return append(append([]corev1.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...)
}

func (m *machine) status(pod, name string) (corev1.ContainerStatus, bool) {
	p, _ := m.podNamed(pod)
	for _, s := range statuses(p) {
		if s.Name == name {
			return s, true
		}
	}
	return corev1.ContainerStatus{}, false
}

// restarts is a container's restart count, -1 if it cannot be known.
func (m *machine) restarts(pod, name string) int32 {
	s, found := m.status(pod, name)
	if !found {
		return -1
	}
	return s.RestartCount
}

func (l *life) started() bool {
	guest, _ := l.status("guest", "ticks")
	return l.restarts("web", "app") >= 1 && guest.State.Running != nil && strings.Contains(l.said("guest", "ticks"), "tick 3\n")
}

func (l *life) edited() bool {
	s, _ := l.status("web", "side")
	running := s.State.Running != nil && s.Started != nil && *s.Started && s.Image == world.second
	return running && len(l.runs("side")) >= 2
}

func (l *life) gone() bool {
	list, err := l.list()
	if err != nil || len(list) > 0 {
		return false
	}
	sandboxes, err := l.ListPodSandbox(l.ctx, &cri.ListPodSandboxRequest{})
	return err == nil && len(sandboxes.GetItems()) == 0
}

// waits is what the pods are at, for a failure.
func (l *life) waits() string {
	list, err := l.list()
	text := fmt.Sprint(err)
	for _, p := range list {
		text += fmt.Sprintf("\n%s %s", p.Name, p.Status.Phase)
		for _, s := range statuses(p) {
			text += fmt.Sprintf("\n  %s %d %v", s.Name, s.RestartCount, s.State.String())
		}
	}
	return text
}
