package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// dials are the gauges of a node in memory.
type dials struct {
	mu       sync.Mutex
	readings pressure.Readings
	reads    int
	alarm    func()
	// relief says, if it is set, whether there is enough of everything.
	relief func() bool
}

func (d *dials) Read() (pressure.Readings, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	out := pressure.Readings{}
	relieved := d.relief != nil && d.relief()
	for s, r := range d.readings {
		if out[s] = r; relieved {
			out[s] = pressure.Reading{Available: r.Capacity, Capacity: r.Capacity}
		}
	}
	return out, nil
}

func (d *dials) Settle() error { return nil }
func (d *dials) Apart() bool   { return false }

func (d *dials) Alarm(ctx context.Context, f func()) error {
	d.mu.Lock()
	d.alarm = f
	d.mu.Unlock()
	<-ctx.Done()
	return nil
}

// set says what is left of something, in percent.
func (d *dials) set(s pressure.Signal, percent int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readings == nil {
		d.readings = pressure.Readings{}
	}
	d.readings[s] = pressure.Reading{Available: percent << 20, Capacity: 100 << 20}
}

func (d *dials) relieve(when func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.relief = when
}

func (d *dials) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

// watched are options of an agent that watches the node, with thresholds of ten percent.
func (w *world) watched(d *dials, signals ...pressure.Signal) Options {
	w.t.Helper()
	o := w.options()
	ten, err := pressure.ParseThreshold("10%")
	if err != nil {
		w.t.Fatal(err)
	}
	o.Eviction = Eviction{Gauges: d, Thresholds: pressure.Thresholds{}, Transition: 5 * time.Minute}
	for _, s := range signals {
		o.Eviction.Thresholds[s] = ten
	}
	return o
}

// eater is a pod with one container of its name.
func eater(name, spec string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {terminationGracePeriodSeconds: 60, %scontainers: [{name: %[1]s, image: 'app:1'}]}\n---\n", name, spec)
}

func (f *files) use(volume string, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = map[string]int64{volume: bytes}
}

func (s *server) uses(memory, layers map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory, s.layers = memory, layers
}

// evicted waits until a pod is evicted, for so long at most, and checks its message.
func (w *world) evicted(name, message string, within time.Duration) {
	w.t.Helper()
	begin := time.Now()
	w.until(name+" evicted", func() bool { return w.pod(name).Status.Reason == "Evicted" })
	p := w.pod(name)
	if took := time.Since(begin); took > within {
		w.t.Errorf("evicted after %s", took)
	}
	if p.Status.Phase != corev1.PodFailed || p.Status.Message != message || !w.happened(name, "Evicted: "+message) {
		w.t.Errorf("%s: %s %q", name, p.Status.Phase, p.Status.Message)
	}
}

func disrupted(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c.Reason + " " + c.Message
		}
	}
	return ""
}

// VO5, EX8: a volume above its limit ends its pod within 11 s; its files are removed; it is made
// anew with growing pauses, also if the agent is killed meanwhile.
func TestSizeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, eater("web", "volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}], "))
		w.start()
		w.runs("web#0")
		w.settle(time.Minute)
		first := w.pod("web").UID
		w.files.use("web/v", 1<<20+1)
		const message = `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `
		w.evicted("web", message, 11*time.Second)
		if got := disrupted(w.pod("web")); got != "" {
			t.Errorf("disrupted: %s", got)
		}
		w.files.use("", 0)
		w.until("nothing left", w.server.empty)
		if next, until := w.agent.Next(first); next != "a new pod after its eviction" || time.Until(until) > 10*time.Second {
			t.Errorf("next %q, in %s", next, time.Until(until))
		}
		w.stop() // as a kill: nothing is written at the end of a run except notes
		w.start()
		w.settle(5 * time.Second)
		if got := w.pod("web"); got.UID != first || got.Status.Reason != "Evicted" || got.Status.Message != message {
			t.Errorf("after a new start: %+v", got.Status)
		}
		w.runs("web#0")
		second := w.pod("web").UID
		if second == first {
			t.Error("the UID stays")
		}
		w.files.use("web/v", 1<<30)
		w.evicted("web", message, 11*time.Second)
		w.files.use("", 0)
		ended := time.Now()
		w.runs("web#0")
		if took := time.Since(ended); took < 19*time.Second || took > 21*time.Second || w.pod("web").UID == second {
			t.Errorf("made anew after %s", took)
		}
		w.wishes.set(t, "")
		w.gone()
		w.stop()
	})
}

// RE13, EX7, TM4: a container above its limit; it has a second to end, two for its signal.
func TestEphemeralStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(string, uint32) program { return program{after: -1, deaf: true} }
		limit := func(name, most string) string {
			return fmt.Sprintf("{name: %s, image: 'app:1', resources: {limits: {ephemeral-storage: %s}}}", name, most)
		}
		w.wishes.set(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: ["+limit("app", "1Mi")+", "+limit("other", "9Mi")+"]}\n")
		o := w.options()
		o.Node.Allocatable[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
		w.startWith(o)
		w.runs("app#0", "other#0")
		w.server.uses(nil, map[string]int64{"app": 1 << 20, "other": 2 << 20})
		w.settle(time.Minute)
		w.runs("app#0", "other#0")
		w.server.uses(nil, map[string]int64{"app": 1<<20 + 1})
		w.evicted("web", `Container app exceeded its local ephemeral storage limit "1Mi". `, 11*time.Second)
		if got := w.server.running(); len(got) != 2 { // PH8
			t.Errorf("Failed after the end of its containers, running %v", got)
		}
		began := time.Now()
		w.until("nothing left", w.server.empty)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("ended after %s", took)
		}
		w.stop()
	})
}

// EX3, EX6, EX7, EX9, EX10, RE12: memory.
func TestMemoryPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(t), &dials{}
		d.set(pressure.Memory, 50)
		others := eater("small", "") + eater("critical", "priorityClassName: system-node-critical, ")
		w.wishes.set(t, eater("big", "")+others)
		w.startWith(w.watched(d, pressure.Memory))
		w.runs("big#0", "small#0", "critical#0")
		w.server.uses(map[string]int64{"big": 300 << 20, "small": 10 << 20, "critical": 900 << 20}, nil)
		if list := w.agent.Conditions(); len(list) != 3 || list[0].Reason != "HasSufficientMemory" {
			t.Errorf("conditions %+v", list)
		}
		first := w.pod("big").UID
		d.relieve(func() bool { return !slices.Contains(w.server.running(), "big#0") })
		d.set(pressure.Memory, 9)
		const message = "The node was low on resource: memory. Threshold quantity: 10Mi, available: 9Mi. Container big was using 300Mi, request is 0, has larger consumption of memory. "
		w.evicted("big", message, 11*time.Second)
		if got := disrupted(w.pod("big")); got != "TerminationByKubelet "+message {
			t.Errorf("disrupted: %s", got)
		}
		w.runs("small#0", "critical#0")
		d.relieve(nil)
		d.set(pressure.Memory, 50)
		if list := w.agent.Conditions(); list[0].Status != corev1.ConditionTrue || list[0].Reason != "HasInsufficientMemory" {
			t.Errorf("conditions %+v", list)
		}
		if !w.happened("till-4", "NodeHasInsufficientMemory: Node till-4 status is now: NodeHasInsufficientMemory") ||
			!w.happened("till-4", "EvictionThresholdMet: Attempting to reclaim memory") {
			t.Errorf("events of the node: %v", w.reasons("till-4"))
		}
		late := eater("late", "") + strings.Replace(eater("paying", ""), "image: 'app:1'", "image: 'app:1', resources: {requests: {memory: 1Mi}}", 1)
		w.wishes.set(t, eater("big", "")+others+late)
		w.runs("small#0", "critical#0", "paying#0")
		if got := scheduled(w.pod("late")); !strings.Contains(got, "node had condition: [MemoryPressure]") {
			t.Errorf("late: %s", got)
		}
		w.settle(4 * time.Minute)
		if got := w.server.running(); len(got) != 3 {
			t.Errorf("after four minutes: %v", got)
		}
		w.settle(50 * time.Second)
		w.runs("big#0", "critical#0", "late#0", "paying#0", "small#0")
		if w.pod("big").UID == first {
			t.Error("the UID stays")
		}
		w.stop()
	})
}

// EX5, EX6: what is unused goes before pods; then one pod for each look.
func TestDiskPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(t), &dials{}
		d.set(pressure.NodeFS, 50)
		o, reclaimed, enough := w.watched(d, pressure.NodeFS, pressure.ImageFS), 0, true
		o.Eviction.Reclaim = func(context.Context) (bool, error) {
			if reclaimed++; enough {
				d.set(pressure.NodeFS, 50)
			}
			return enough, nil
		}
		w.wishes.set(t, eater("a", "")+eater("b", "")+eater("c", ""))
		w.server.uses(nil, map[string]int64{"a": 1 << 20, "b": 3 << 20, "c": 2 << 20})
		w.startWith(o)
		w.runs("a#0", "b#0", "c#0")
		d.set(pressure.NodeFS, 5)
		w.settle(time.Minute)
		if w.runs("a#0", "b#0", "c#0"); reclaimed != 1 {
			t.Errorf("reclaimed %d times", reclaimed)
		}
		enough = false
		d.relieve(func() bool { return slices.Equal(w.server.running(), []string{"a#0"}) })
		d.set(pressure.NodeFS, 5)
		const message = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Mi, available: 5Mi. Container %s was using %s, request is 0, has larger consumption of ephemeral-storage. "
		folder, err := space.Used(t.Context(), t.TempDir()) // the one of its log
		if err != nil {
			t.Fatal(err)
		}
		using := func(mebibytes int64) string {
			return resource.NewQuantity(mebibytes<<20+folder.Bytes, resource.BinarySI).String()
		}
		w.evicted("b", fmt.Sprintf(message, "b", using(3)), 11*time.Second)
		began := time.Now()
		w.evicted("c", fmt.Sprintf(message, "c", using(2)), 11*time.Second)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the second one only after %s", took)
		}
		w.settle(4 * time.Minute)
		w.runs("a#0")
		d.relieve(nil)
		d.set(pressure.NodeFS, 50)
		w.settle(time.Minute)
		w.runs("a#0", "b#0", "c#0")
		w.stop()
	})
}

// EX6: the end of an evicted pod is waited for, for 30 s at most.
func TestOneEvictionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(t), &dials{}
		w.server.fail = func(call, _ string) error {
			if call == "StopPodSandbox" {
				return context.DeadlineExceeded
			}
			return nil
		}
		w.wishes.set(t, eater("a", "")+eater("b", ""))
		d.set(pressure.PIDs, 50)
		w.startWith(w.watched(d, pressure.PIDs))
		w.runs("a#0", "b#0")
		d.set(pressure.PIDs, 5)
		evicted := func() (n int) {
			for _, p := range w.agent.Pods() {
				if p.Status.Reason == "Evicted" {
					n++
				}
			}
			return n
		}
		w.until("one evicted", func() bool { return evicted() == 1 })
		w.settle(29 * time.Second)
		if got := evicted(); got != 1 {
			t.Errorf("%d are evicted, and the first has not ended", got)
		}
		w.settle(11 * time.Second)
		if got := evicted(); got != 2 {
			t.Errorf("%d are evicted", got)
		}
		w.stop()
	})
}

// EX4: the kernel's alarm counts at once; else it is looked every 10 s, and not at all without need.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(t), &dials{}
		d.set(pressure.Memory, 50)
		w.wishes.set(t, eater("big", ""))
		w.startWith(w.watched(d, pressure.Memory))
		w.runs("big#0")
		w.settle(time.Minute)
		before := d.count()
		if w.settle(time.Minute); d.count() != before+6 {
			t.Errorf("%d looks in a minute", d.count()-before)
		}
		w.settle(2 * time.Second)
		d.set(pressure.Memory, 5)
		for range 100 {
			d.alarm()
		}
		w.settle(0)
		if got := w.pod("big").Status.Reason; got != "Evicted" {
			t.Errorf("after the alarm: %q", got)
		}
		if d.count() > before+6+3 {
			t.Errorf("%d looks for a hundred alarms", d.count()-before-6)
		}
		w.stop()

		w.startWith(w.watched(d))
		before = d.count()
		if w.settle(time.Hour); d.count() != before {
			t.Errorf("%d looks without thresholds", d.count()-before)
		}
		if len(w.agent.Conditions()) != 3 {
			t.Error("no conditions without thresholds")
		}
		w.stop()
	})
}

// EX8: killed at any write of an eviction and of what follows, the pod ends and exactly one is made
// in its place.
func TestKilledWhileEvicting(t *testing.T) {
	for _, before := range []bool{true, false} {
		for at := 1; at < 12; at++ {
			t.Run(fmt.Sprintf("%d %v", at, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { killedWhileEvicting(t, at, before) })
			})
		}
	}
}

func killedWhileEvicting(t *testing.T, at int, before bool) {
	w := newWorld(t)
	w.wishes.set(t, eater("web", "volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}], "))
	w.start()
	w.runs("web#0")
	w.settle(time.Minute)
	first := w.pod("web").UID
	w.mu.Lock()
	w.killAt, w.before = w.written+at, before
	w.mu.Unlock()
	w.files.use("web/v", 2<<20)
	w.settle(15 * time.Second)
	evicted := w.pod("web").Status.Reason == "Evicted" || w.pod("web").UID != first
	w.revive()
	w.settle(15 * time.Second)
	if w.revive(); !evicted {
		w.evicted("web", `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `, 11*time.Second)
	}
	w.files.use("", 0)
	w.until("made anew", func() bool {
		w.revive()
		p, found := w.agent.Pod("default", "web")
		return found && p.UID != first && slices.Equal(w.server.running(), []string{"web#0"})
	})
	w.mu.Lock()
	w.killAt = 0
	w.mu.Unlock()
	w.files.use("web/v", 2<<20)
	w.evicted("web", `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `, 11*time.Second)
	w.files.use("", 0)
	pods := map[types.UID]bool{}
	for _, e := range w.agent.Events() {
		if e.Reason == "Evicted" {
			pods[e.InvolvedObject.UID] = true
		}
	}
	pause := 5 * time.Second << len(pods) // 10 s, doubled for each pod after the first
	if next, until := w.agent.Next(w.pod("web").UID); len(pods) < 2 || time.Until(until) < pause-time.Second || time.Until(until) > pause {
		t.Errorf("the back-off after %d evictions: next %q in %s, want %s", len(pods), next, time.Until(until), pause)
	}
	w.wishes.set(t, "")
	w.settle(time.Second)
	w.revive()
	w.gone()
	w.stop()
}

// revive starts the agent again if it was killed.
func (w *world) revive() {
	w.mu.Lock()
	killed := w.killed
	w.mu.Unlock()
	if killed {
		w.stop()
		w.mu.Lock()
		w.killed = false
		w.mu.Unlock()
		w.start()
		w.settle(time.Second)
	}
}

// EX7 on a full disk: the eviction cannot be put on record before its pod makes room for that.
func TestEvictionOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(t), &dials{}
		w.wishes.set(t, eater("web", ""))
		d.set(pressure.NodeFS, 50)
		o := w.watched(d, pressure.NodeFS)
		full := func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.readings[pressure.NodeFS].Available == 0 }
		o.Write = w.writeUnless(full)
		w.startWith(o)
		w.runs("web#0")
		w.settle(time.Minute)
		d.set(pressure.NodeFS, 0)
		w.until("evicted", func() bool { return w.pod("web").Status.Reason == "Evicted" })
		w.until("nothing left", w.server.empty)
		w.settle(time.Minute)
		d.set(pressure.NodeFS, 50)
		w.settle(2 * time.Second)
		w.stop()
		w.startWith(o) // it is on record now
		w.settle(time.Second)
		if got := w.pod("web").Status.Reason; got != "Evicted" {
			t.Errorf("after a new start: %q", got)
		}
		w.stop()
	})
}

// While a record cannot be written the pod makes no step, and its true status is shown.
func TestStatusOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		full := &atomic.Bool{}
		w.server.programs = func(_ string, attempt uint32) program {
			return program{after: 20 * time.Second, code: int32(attempt) + 7}
		}
		w.wishes.set(t, eater("web", "restartPolicy: OnFailure, ")+eater("other", ""))
		o := w.options()
		o.Write = w.writeUnless(full.Load)
		w.startWith(o)
		w.runs("web#0", "other#0")
		w.settle(time.Second)
		full.Store(true)
		w.settle(30 * time.Second)
		s := w.pod("web").Status
		next, _ := w.agent.Next(w.pod("web").UID)
		if c := s.ContainerStatuses[0]; c.State.Running != nil || c.Ready || next != "room for its record" ||
			len(w.server.running()) != 0 || !strings.Contains(w.describe(), "pod waits until its record can be written") {
			t.Errorf("%s, %+v, next %q, running %v", s.Phase, c, next, w.server.running())
		}
		full.Store(false)
		w.until("running", func() bool {
			c := w.pod("web").Status.ContainerStatuses[0]
			return c.State.Running != nil && c.RestartCount == 1 && c.LastTerminationState.Terminated != nil && c.LastTerminationState.Terminated.ExitCode == 7
		})
		w.stop()
	})
}
