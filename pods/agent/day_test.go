package agent

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

var (
	days    = flag.Int("days", 2, "how many days of a flapping node TestFlapping plays")
	daySeed = flag.Uint64("seed", 0, "the seed of the first day of TestFlapping; the others follow")
)

// day is 24 hours on a node whose network, registry, disk and CRI server flap.
type day struct {
	*world
	mu   sync.Mutex
	dice *rand.Rand
	// The weather: what fails at the moment.
	registry, network, disk, sick bool

	pulls map[string]wall
	mount map[string]wall
	made  map[string]*made
	byID  map[string]*made
	asked map[string]*runtime.CreateContainerRequest // containers that were not started yet, by id
	// How much was judged.
	tries, failures, restarts, refused int
}

// chance draws whether something fails in bad weather.
func (d *day) chance(bad *bool, p float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *bad && d.dice.Float64() < p
}

func (d *day) draw(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dice.IntN(n)
}

// shaky are the volumes of a node whose disk is full at times.
type shaky struct {
	*files
	d *day
}

// SetUp judges that no try comes before the pause after the failure before it.
func (s shaky) SetUp(ctx context.Context, pod *corev1.Pod) error {
	uid := string(pod.UID)
	s.d.try("set-up of the volumes of "+uid, s.d.mount, uid)
	err := s.d.full()
	if err == nil {
		err = s.files.SetUp(ctx, pod)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, uid, "secret"), []byte("s3cret"), 0o600)
	}
	s.d.tried(s.d.mount, uid, err, firstMountPause, longestMountPause)
	return err
}

func (s shaky) Mounts(pod *corev1.Pod, c *corev1.Container, in volumes.MountInput) ([]*runtime.Mount, func(), error) {
	if err := s.d.full(); err != nil {
		return nil, nil, err
	}
	return s.files.Mounts(pod, c, in)
}

func (s shaky) TerminationLog(uid, container string, attempt uint32) (string, error) {
	if err := s.d.full(); err != nil {
		return "", err
	}
	return s.files.TerminationLog(uid, container, attempt)
}

func (s shaky) WriteHosts(uid string, content []byte) (string, error) {
	if err := s.d.full(); err != nil {
		return "", err
	}
	return s.files.WriteHosts(uid, content)
}

const dayPods = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: prepare, image: "web-prepare:1"}
  - {name: proxy, image: "web-proxy:1", restartPolicy: Always, readinessProbe: {exec: {command: ["true"]}, periodSeconds: 60}}
  containers:
  - {name: app, image: "web-app:1", imagePullPolicy: Always}
  - {name: helper, image: "web-helper:1", lifecycle: {postStart: {exec: {command: ["true"]}}, preStop: {exec: {command: ["true"]}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: quick}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: quick, image: "quick:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: job}
spec: {restartPolicy: OnFailure, containers: [{name: work, image: "job:1", imagePullPolicy: Always}]}
---
apiVersion: v1
kind: Pod
metadata: {name: once}
spec: {restartPolicy: Never, containers: [{name: once, image: "once:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: key}
spec:
  containers: [{name: keyed, image: "key:1", env: [{name: KEY, valueFrom: {secretKeyRef: {name: key, key: key}}}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: foreign, annotations: {edit: "EDIT"}}
spec: {nodeName: till-5, containers: [{name: app, image: "app:1"}]}
`

const daySecret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {key: s3cret}\n"

// wish draws what is wanted next.
func (d *day) wish(turn int) {
	text := strings.ReplaceAll(dayPods, "EDIT", fmt.Sprint(turn))
	if d.draw(3) > 0 {
		text += daySecret
	}
	switch d.draw(5) {
	case 0:
		text = strings.ReplaceAll(text, "web-helper:1", fmt.Sprint("web-helper:", turn))
	case 1:
		text = strings.ReplaceAll(text, "name: quick}\n", fmt.Sprintf("name: quick, annotations: {turn: %q}}\n", fmt.Sprint(turn)))
	case 2:
		all := strings.Split(text, "---\n")
		i := d.draw(len(all))
		text = strings.Join(slices.Delete(all, i, i+1), "---\n")
	case 3:
		text = strings.ReplaceAll(text, "policy: OnFailure,", fmt.Sprintf("policy: OnFailure, hostname: %q,", fmt.Sprint("h", turn)))
	}
	d.want(text)
}

// want has other objects be there.
func (d *day) want(text string) {
	d.mu.Lock()
	clear(d.mount) // what was missing may be there: it is tried at once
	d.mu.Unlock()
	d.wishes.set(d.t, text)
}

// does is what containers do: most crash.
func (d *day) does(name string, _ uint32) program {
	lives := time.Duration(1+d.draw(90)) * time.Second
	switch name {
	case "prepare":
		return program{after: time.Second, code: int32(d.draw(2))}
	case "app":
		if d.draw(6) == 0 {
			lives += 11 * time.Minute // its back-off begins anew
		}
		return program{after: lives, code: 1}
	case "quick":
		return program{after: time.Second, code: 1}
	case "work", "once":
		return program{after: lives, code: int32(d.draw(4))}
	}
	return program{after: -1}
}

// strike does what happens to a node at random.
func (d *day) strike(turn int) {
	switch d.draw(16) {
	case 0, 1:
		d.server.cut()
	case 2:
		d.die(true)
	case 3:
		d.die(false)
	case 4:
		d.crash()
	case 5:
		d.server.mu.Lock()
		clear(d.server.images)
		d.server.mu.Unlock()
	case 6, 7, 8:
		d.wish(turn)
	case 9:
		d.reboot()
	}
}

// die ends the agent, at once or in order, and starts the next.
func (d *day) die(killed bool) {
	d.world.mu.Lock()
	d.killed = killed
	d.world.mu.Unlock()
	d.stop()
	d.world.mu.Lock()
	d.killed = false
	d.world.mu.Unlock()
	d.begin()
}

func (d *day) begin() {
	d.mu.Lock()
	clear(d.pulls) // a new agent knows of no pauses
	clear(d.mount)
	d.mu.Unlock()
	o := d.options()
	o.CRI, o.Volumes, o.ParallelPulls = &flaky{d.server, d}, shaky{d.files, d}, 2
	o.Settings.CrashLoopMax = crashLongest
	o.Write = func(path string, data []byte, mode records.Mode) error {
		if err := d.full(); err != nil {
			return err
		}
		return d.write(path, data, mode)
	}
	d.startWith(o)
}

// crash ends a sandbox and all in it.
func (d *day) crash() {
	d.server.mu.Lock()
	defer d.server.mu.Unlock()
	for id, s := range d.server.sandboxes {
		if s.State == runtime.PodSandboxState_SANDBOX_READY {
			d.end(id, 137)
			return
		}
	}
}

func (d *day) end(sandbox string, code int32) {
	for id, c := range d.server.containers {
		if c.sandbox == sandbox {
			d.server.end(id, code)
		}
	}
	d.server.sandboxes[sandbox].State = runtime.PodSandboxState_SANDBOX_NOTREADY
	d.server.tell(sandbox, sandbox, runtime.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// reboot ends everything, the agent too.
func (d *day) reboot() {
	d.world.mu.Lock()
	d.killed = true
	d.world.mu.Unlock()
	d.stop()
	d.server.mu.Lock()
	for id := range d.server.sandboxes {
		d.end(id, 255)
	}
	d.server.mu.Unlock()
	d.world.mu.Lock()
	d.killed, d.boot = false, d.boot+"+"
	d.world.mu.Unlock()
	d.begin()
}

// counted checks that no restart count falls.
func (d *day) counted() {
	for _, p := range d.agent.Pods() {
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			key := string(p.UID) + c.Name
			if c.RestartCount < d.counts[key] {
				d.t.Errorf("restart count of %s of %s fell from %d to %d", c.Name, p.Name, d.counts[key], c.RestartCount)
			}
			d.counts[key] = c.RestartCount
		}
	}
}

// play lets a day pass, and then the weather clear and all pods be deleted.
func (d *day) play() {
	d.begin()
	d.settle(time.Second)
	empty := entries(d.agent.l)
	d.wish(0)
	var heap, routines []int
	for turn := range 24 * 12 {
		d.mu.Lock()
		for _, bad := range []*bool{&d.registry, &d.network, &d.disk, &d.sick} {
			*bad = d.dice.IntN(4) == 0
		}
		d.mu.Unlock()
		d.settle(time.Duration(d.draw(300)) * time.Second)
		d.strike(turn)
		d.settle(time.Minute)
		d.counted()
		d.server.mu.Lock()
		d.server.calls = nil
		d.server.mu.Unlock()
		if turn%48 == 47 {
			heap, routines = append(heap, size()), append(routines, goruntime.NumGoroutine())
		}
	}
	d.mu.Lock()
	d.registry, d.network, d.disk, d.sick = false, false, false, false
	d.mu.Unlock()
	d.want(dayPods + daySecret)
	d.settle(10 * time.Minute)
	if !d.ready("key") {
		d.t.Errorf("the pod that nothing ails is not ready when all is well again\n%s", d.describe())
	}
	d.want("")
	d.settle(5 * time.Minute) // the sweep
	d.gone()
	for path, n := range entries(d.agent.l) {
		if n > empty[path] && !strings.HasPrefix(path, ".events.") {
			d.t.Errorf("%s has %d entries when no pod is left, and had %d before the first", path, n, empty[path])
		}
	}
	d.stop()
	d.t.Logf("%d tries, %d of them failed; %d restarts after a back-off; %d writes refused; heap %v KiB, %v goroutines", d.tries, d.failures, d.restarts, d.refused, heap, routines)
	if first, last := heap[0], heap[len(heap)-1]; last > first+4<<10 {
		d.t.Errorf("the heap grew from %d to %d KiB in a day", first, last)
	}
	if d.restarts < 100 || d.failures < 20 || d.refused < 100 {
		d.t.Errorf("too little happened for a day that proves something")
	}
}

// size is what the heap holds, in KiB.
func size() int {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 10)
}

// entries are the lengths of all maps and lists that the agent's own parts hold, by their path.
func entries(l *loop) map[string]int {
	all := map[string]int{}
	seen := map[uintptr]bool{}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if v.IsNil() || v.Kind() == reflect.Pointer && seen[v.Pointer()] {
				return
			}
			if v.Kind() == reflect.Pointer {
				seen[v.Pointer()] = true
			}
			walk(path, v.Elem())
		case reflect.Struct:
			if !strings.Contains(v.Type().PkgPath(), "/pods/agent") && !strings.Contains(v.Type().PkgPath(), "/pods/probes") {
				return
			}
			for i := range v.NumField() {
				if name := v.Type().Field(i).Name; name != "o" { // the options, which are the test's
					walk(path+"."+name, v.Field(i))
				}
			}
		case reflect.Map, reflect.Slice, reflect.Chan:
			all[path] = v.Len()
		}
	}
	walk("", reflect.ValueOf(l))
	return all
}

// RB5, BO1, BO4, IM9, VO1: a day of a node on which network, registry, disk and CRI server flap, the
// agent dies and the machine boots anew. No container is made twice (the server of the test sees to
// that too), no restart is lost, none comes before its back-off, no pull and no volume is tried more
// often than its pauses allow, and at the end nothing is left: no sandbox, no Secret's file, no entry
// of a map.
func TestFlapping(t *testing.T) {
	for i := range *days {
		seed := *daySeed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &day{
					world: newWorld(t), dice: rand.New(rand.NewPCG(seed, 1)),
					pulls: map[string]wall{}, mount: map[string]wall{}, made: map[string]*made{}, byID: map[string]*made{}, asked: map[string]*runtime.CreateContainerRequest{},
				}
				d.server.programs, d.server.fail, d.server.images = d.does, d.fails, map[string]bool{}
				d.server.delay["PullImage"] = 3 * time.Second
				d.play()
			})
		})
	}
}
