package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BO10: the event of an end starts the next step. In a bubble whose clock stands still while
// something can be done, that takes no time at all: a look once a second would.
func TestExitStartsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(_ string, attempt uint32) program {
			if attempt == 0 {
				return program{after: 4321 * time.Millisecond, code: 1}
			}
			return program{after: -1}
		}
		w.wishes.set(t, one)
		w.start()
		w.runs("app#1")
		var ended, started int64
		w.server.mu.Lock()
		for _, c := range w.server.containers {
			if c.State == runtime.ContainerState_CONTAINER_RUNNING {
				started = c.StartedAt
			} else {
				ended = c.FinishedAt
			}
		}
		w.server.mu.Unlock()
		if gap := time.Duration(started - ended); ended == 0 || gap < 0 || gap >= 50*time.Millisecond {
			t.Errorf("%s from the end to the next start", gap)
		}
		w.stop()
	})
}

// AD7: pods are admitted by priority, critical ones first, then in the order of their files and of
// their places in them: that of their objects. Their UIDs do not count.
func TestOrderOfScheduling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		text := ""
		for _, p := range []string{"z", "u", "high: {priority: 5}", "x", "cluster: {priorityClassName: system-cluster-critical}", "low: {priority: -1}",
			"w", "node: {priorityClassName: system-node-critical}", "v", "higher: {priority: 6}"} {
			name, spec, _ := strings.Cut(p, ": {")
			if spec = strings.TrimSuffix(spec, "}"); spec != "" {
				spec = "  " + spec + "\n"
			}
			text += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n%s  containers: [{name: %s, image: 'app:1'}]\n", name, spec, name)
		}
		w.wishes.set(t, text)
		w.start()
		w.until("all run", func() bool { return len(w.server.running()) == 10 })
		var order []string
		for _, e := range w.agent.Events() {
			if e.Reason == "Scheduled" {
				order = append(order, e.InvolvedObject.Name)
			}
		}
		if got, want := strings.Join(order, " "), "node cluster higher high z u x w v low"; got != want {
			t.Errorf("scheduled %s, want %s", got, want)
		}
		w.stop()
	})
}

// AD8: a pod that ends holds its host ports until its sandbox is stopped to the end, not only until
// it is not ready. Another one that waits for them is started when they are free; it does not fail.
func TestPortsOfEndingPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const first, second = "till", "desk"
		object := func(name string) string {
			return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"+
				"spec: {containers: [{name: %[1]s, image: 'app:1', ports: [{containerPort: 80, hostPort: 8080}]}]}\n", name)
		}
		w.server.delay["network"] = 300 * time.Millisecond
		var released, asked atomic.Int64
		w.server.fail = func(call, subject string) error {
			switch {
			case call == "network":
				released.Store(time.Now().UnixNano())
			case call == "RunPodSandbox" && subject == second:
				asked.CompareAndSwap(0, time.Now().UnixNano())
			}
			return nil
		}
		w.wishes.set(t, object(first)+object(second))
		w.start()
		w.runs(first + "#0")
		w.wishes.set(t, object(second))
		w.runs(second + "#0")
		if late := time.Duration(asked.Load() - released.Load()); late < 0 || late > 50*time.Millisecond {
			t.Errorf("the sandbox of %s was asked for %s after the port was released", second, late)
		}
		w.stop()
	})
}

// RB7: after a boot nobody is asked for an image that is here, except by policy Always.
func TestBootAsksForNoImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one+"---\n"+strings.NewReplacer("name: web", "name: fresh", "name: app", "name: fresh", `"app:1"`, "'fresh:1', imagePullPolicy: Always").Replace(
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app, image: \"app:1\"}]}\n"))
		w.start()
		w.runs("app#0", "fresh#0")
		w.settle(time.Second)
		w.stop()
		w.boot = "boot-2"
		w.server.mu.Lock()
		for id := range w.server.containers {
			w.server.end(id, 255)
		}
		for _, s := range w.server.sandboxes {
			s.State = runtime.PodSandboxState_SANDBOX_NOTREADY
		}
		w.server.mu.Unlock()
		w.start()
		w.runs("app#1", "fresh#1")
		if kept, always := w.server.count("PullImage app:1"), w.server.count("PullImage fresh:1"); kept != 1 || always != 2 {
			t.Errorf("%d and %d pulls after a boot, want 1 of before and 2", kept, always)
		}
		w.stop()
	})
}

// IM11: an image is asked for and pulled for the handler of the pod's class, also ahead of its
// container and for a volume.
func TestImagesOfHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, strings.ReplaceAll(one, "spec:", "spec:\n  volumes: [{name: v, image: {reference: 'volume:1'}}]\n  runtimeClassName: wasm")+
			"    volumeMounts: [{name: v, mountPath: /v}]\n  - {name: later, image: 'later:1'}\n")
		w.start()
		w.runs("app#0", "later#0")
		for _, image := range []string{"app:1", "later:1", "volume:1"} {
			for _, call := range []string{"ImageStatus", "PullImage"} {
				if !slices.Contains(w.server.handlers, call+" "+image+" wasm") {
					t.Errorf("no %s of %s for its handler: %q", call, image, w.server.handlers)
				}
			}
		}
		if i := slices.IndexFunc(w.server.handlers, func(call string) bool { return !strings.HasSuffix(call, " wasm") }); i >= 0 {
			t.Errorf("call %q for another handler", w.server.handlers[i])
		}
		w.stop()
	})
}

// DL6, ST3: what the runtime says of a start that failed is the message of its termination, also
// where the policy would show the end of the log, and that of the waiting container.
func TestStartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const says = `exec: "nothing": executable file not found in $PATH`
		w := newWorld(t)
		w.server.fail = func(call, name string) error {
			if call != "StartContainer" {
				return nil
			}
			w.server.mu.Lock()
			defer w.server.mu.Unlock()
			for _, c := range w.server.containers {
				if c.Metadata.Name == name && c.State == runtime.ContainerState_CONTAINER_CREATED {
					c.State, c.ExitCode, c.Reason, c.Message = runtime.ContainerState_CONTAINER_EXITED, 128, "StartError", says
					c.StartedAt, c.FinishedAt = time.Now().UnixNano(), time.Now().UnixNano()
				}
			}
			return errors.New(says)
		}
		w.wishes.set(t, strings.Replace(one, `image: "app:1"`, "image: 'app:1'\n    terminationMessagePolicy: FallbackToLogsOnError", 1))
		w.start()
		w.until("it failed twice", func() bool {
			p, found := w.agent.Pod("default", "web")
			return found && p.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil
		})
		s := w.pod("web").Status.ContainerStatuses[0]
		if last := s.LastTerminationState.Terminated; last.Message != says || last.Reason != "StartError" || last.ExitCode != 128 {
			t.Errorf("terminated %+v", last)
		}
		if !w.happened("web", "Failed: Error: "+says) {
			t.Errorf("events %q", w.reasons("web"))
		}
		w.stop()
	})
}
