package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// watcher sees how pods change, as often as one can ask.
type watcher struct {
	mu      sync.Mutex
	history map[string][]corev1.Pod // by namespace/name: each as it was after a change
	before  map[string]time.Time    // when the last list was asked for in which the pod was not yet
	asked   time.Time               // when the last list was asked for
	listed  map[string]bool         // in the last list
	events  []event                 // each once, in the order of its first time
	known   map[event]bool
}

// watch asks for the pods until it is told to stop.
func (s *side) watch(ctx context.Context, w *watcher) {
	for ctx.Err() == nil {
		asked := time.Now()
		if pods, err := s.pods(ctx); err == nil {
			w.note(asked, pods, s.suffix)
		}
		if events, err := s.events(ctx); err == nil {
			w.noteEvents(events)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// note notes the answer to a list that was asked for at a time.
func (w *watcher) note(asked time.Time, pods []corev1.Pod, suffix string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.asked
	w.asked = asked
	clear(w.listed)
	for _, p := range pods {
		key := p.Namespace + "/" + strings.TrimSuffix(p.Name, suffix)
		w.listed[key] = true
		if len(w.history[key]) == 0 {
			w.before[key] = last
		}
		if h := w.history[key]; len(h) == 0 || !equality.Semantic.DeepEqual(h[len(h)-1], p) {
			w.history[key] = append(h, p)
		}
	}
}

func (w *watcher) noteEvents(events []event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		if !w.known[e] {
			w.known[e] = true
			w.events = append(w.events, e)
		}
	}
}

// eventsOf are the events of one pod.
func (w *watcher) eventsOf(namespace, name string) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []event
	for _, e := range w.events {
		if e.namespace == namespace && e.name == name {
			list = append(list, e)
		}
	}
	return list
}

func (w *watcher) of(key string) ([]corev1.Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.history[key]), w.listed[key]
}

// unseen is when the last list was asked for that a pod was not yet in.
func (w *watcher) unseen(key string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.before[key]
}

// runAll runs the manifests, some at once, and says what was seen of each.
func (s *side) runAll(ctx context.Context, cases []diffCase, parallel int) (map[string]observation, error) {
	if err := s.pull(ctx); err != nil {
		return nil, err
	}
	w := &watcher{history: map[string][]corev1.Pod{}, before: map[string]time.Time{}, listed: map[string]bool{}, known: map[event]bool{}}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go s.watch(watching, w)
	var mu sync.Mutex
	seen, failed := map[string]observation{}, map[string]error{}
	places := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for _, c := range cases {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			o, err := s.runCase(ctx, w, c)
			mu.Lock()
			defer mu.Unlock()
			seen[c.name], failed[c.name] = o, err
			fmt.Fprintf(s.stdout, "%s: %s\n", s.title, c.name)
		})
	}
	all.Wait()
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if err := failed[name]; err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return seen, errors.Join(problems...)
}

// pull pulls the images, so that it makes no difference which pod is the first that needs one.
func (s *side) pull(ctx context.Context) error {
	for _, image := range []string{"busybox:1", "app:1", "named:1", "health:1"} {
		if _, err := s.node.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: s.registry.Host + "/" + image}}); err != nil {
			return fmt.Errorf("pull %q: %w", image, err)
		}
	}
	return nil
}

// running is one case in its run.
type running struct {
	*side
	diffCase
	w        *watcher
	host     string // folder of the case on the machine
	out      observation
	lastSeen corev1.Pod
}

// settled is how long containers may take for what they do right after their start, before their
// pod's file is removed.
const settled = time.Second

// runCase runs one manifest from its file's coming to the end of all of its processes.
func (s *side) runCase(ctx context.Context, w *watcher, c diffCase) (observation, error) {
	r := &running{side: s, diffCase: c, w: w, host: filepath.Join(s.dir, "host", c.name), out: observation{facts: map[string]string{}}}
	if err := os.MkdirAll(r.host, 0o777); err != nil {
		return r.out, err
	}
	text := strings.NewReplacer("REGISTRY/", s.registry.Host+"/", "path: HOST", "path: "+r.host).Replace(c.text)
	file := filepath.Join(s.manifests, c.name+".yaml")
	temp := filepath.Join(s.dir, c.name+".tmp")
	if err := errors.Join(os.WriteFile(temp, []byte(text), 0o644), os.Rename(temp, file)); err != nil {
		return r.out, err
	}
	for i, step := range c.steps {
		if err := r.step(ctx, i, step); err != nil {
			return r.out, errors.Join(fmt.Errorf("step %q: %w", step, err), os.Remove(file))
		}
	}
	pods, _ := w.of(r.key())
	if len(pods) == 0 {
		r.out.facts["listed"] = "never"
		return r.out, os.Remove(file)
	}
	r.lastSeen = pods[len(pods)-1]
	observed := r.observe(ctx)
	time.Sleep(settled)
	if err := errors.Join(observed, os.Remove(file)); err != nil {
		return r.out, err
	}
	if !node.Within(2*node.Patience, func() bool { return r.gone(ctx) }) {
		r.out.facts["end"] = "not gone"
	}
	return r.out, r.observeEnd(ctx, pods)
}

func (r *running) key() string { return r.namespace() + "/" + r.name }

func (r *running) step(ctx context.Context, i int, step []string) error {
	switch step[0] {
	case "wait":
		var kept error
		if !node.Within(node.Patience, func() bool {
			kept = r.keepLogs() // a kubelet soon removes those of older attempts
			pods, _ := r.w.of(r.key())
			return len(pods) > 0 && holds(&pods[len(pods)-1], step[1])
		}) {
			r.out.facts[fmt.Sprintf("step[%d]", i)] = "waited in vain for " + step[1]
		}
		return kept
	case "sleep":
		d, err := time.ParseDuration(step[1])
		time.Sleep(d)
		return err
	case "touch":
		return os.WriteFile(filepath.Join(r.host, step[1]), nil, 0o666)
	case "stop-sandbox":
		sandboxes, err := r.sandboxes(ctx)
		for _, sb := range sandboxes {
			if err == nil {
				_, err = r.node.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: sb.GetId()})
			}
		}
		return err
	case "kill":
		pid, err := r.pidOf(ctx, step[1])
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	return errors.New("no such step")
}

// gone says whether the pod is not listed any more and has no process.
func (r *running) gone(ctx context.Context) bool {
	_, listed := r.w.of(r.key())
	if err := r.keepLogs(); err != nil {
		r.out.facts["logs"] = err.Error()
	}
	sandboxes, err := r.sandboxes(ctx)
	if listed || err != nil {
		return false
	}
	return !slices.ContainsFunc(sandboxes, func(sb *runtime.PodSandbox) bool {
		return sb.GetState() == runtime.PodSandboxState_SANDBOX_READY
	})
}

// holds says whether a pod is as a condition says: "ready", "phase=PHASE", "reason=REASON",
// "condition=TYPE=STATUS", or of a container "waiting=NAME:REASON", "restarts=NAME:AT-LEAST",
// "terminated=NAME", "running=NAME".
func holds(p *corev1.Pod, condition string) bool {
	what, value, _ := strings.Cut(condition, "=")
	name, value2, _ := strings.Cut(value, ":")
	switch what {
	case "ready":
		return hasCondition(p, "Ready", "True")
	case "phase":
		return string(p.Status.Phase) == value
	case "reason":
		return p.Status.Reason == value
	case "condition":
		kind, status, _ := strings.Cut(value, "=")
		return hasCondition(p, kind, status)
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.Name != name {
			continue
		}
		switch what {
		case "waiting":
			return c.State.Waiting != nil && c.State.Waiting.Reason == value2
		case "terminated":
			return c.State.Terminated != nil
		case "running":
			return c.State.Running != nil
		case "restarts":
			n, err := strconv.Atoi(value2)
			return err == nil && int(c.RestartCount) >= n
		}
	}
	return false
}

func hasCondition(p *corev1.Pod, kind, status string) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return string(c.Type) == kind && string(c.Status) == status
	})
}
