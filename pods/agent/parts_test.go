package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// DL3, DL5: termination messages, cut to the pod's share; the end of the log stands for one.
func TestTermination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(name string, _ uint32) program { return program{after: time.Second, code: 1} }
		w.files.wrote = map[string]string{"a": strings.Repeat("x", 3000) + strings.Repeat("y", 1096), "b": "broken"}
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  restartPolicy: Never\n  containers:\n"
		for _, name := range []string{"a", "b", "c", "d"} {
			text += "  - {name: " + name + ", image: 'app:1', terminationMessagePolicy: FallbackToLogsOnError}\n"
		}
		w.wishes.set(t, text)
		w.start()
		w.runs("a#0", "b#0", "c#0", "d#0")
		log := filepath.Join(w.dir, "logs", "default_web_"+string(w.pod("web").UID), "c", "0.log")
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, []byte("2026-11-23T12:00:00Z stderr F last words\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.until("failed", func() bool { return w.pod("web").Status.Phase == corev1.PodFailed })
		want := map[string]string{"a": strings.Repeat("x", 3000) + strings.Repeat("y", 72), "b": "broken", "c": "last words\n", "d": ""}
		for name, message := range want {
			if s := w.status(name).State.Terminated; s == nil || s.Message != message {
				t.Errorf("%s: %+v", name, s)
			}
		}
		w.stop()
	})
}

// AD6: what waits for room is judged again when a pod ends, also if its own record is being written
// at that moment.
func TestRoomMeanwhile(t *testing.T) {
	for later := 4 * time.Second; later < 10*time.Second; later += 500 * time.Millisecond {
		t.Run(later.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { roomMeanwhile(t, later) }) })
	}
}

func roomMeanwhile(t *testing.T, later time.Duration) {
	w := newWorld(t)
	o := w.options()
	o.Write = func(path string, data []byte, mode records.Mode) error {
		time.Sleep(time.Second)
		return w.write(path, data, mode)
	}
	w.server.programs = func(name string, _ uint32) program {
		if name == "a" {
			return program{after: 5 * time.Second}
		}
		return program{after: -1}
	}
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {restartPolicy: Never, containers: [{name: " + name +
			", image: 'app:1', resources: {requests: {memory: 600Mi}}}]}\n---\n"
	}
	w.wishes.set(t, pod("a"))
	w.startWith(o)
	w.runs("a#0")
	time.Sleep(later)
	w.wishes.set(t, pod("a")+pod("b")) // its first record is being written when a ends
	w.runs("b#0")
	if got := w.pod("a").Status.Phase; got != corev1.PodSucceeded {
		t.Errorf("a is %s", got)
	}
	w.stop()
}

// A sandbox that was made though its answer was lost is found by its attempt.
func TestSandboxThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		l, p := w.agent.l, w.pod("web")
		j := worker.Job{Action: cycle.Action{Verb: cycle.RunSandbox}, Input: translate.Input{Pod: p, Node: l.o.Node, LogDirectory: l.o.Logs, Mark: l.mark}}
		if d := l.worker.Do(t.Context(), j); d.Reason.Reason != "" || w.server.sandboxes[d.ID] == nil || len(d.Statuses) != 1 {
			t.Errorf("%+v", d.Result)
		}
		j.Action.Attempt = 7
		w.server.fail = func(call, _ string) error {
			if call == "RunPodSandbox" {
				return errdefs.ErrAlreadyExists
			}
			return nil
		}
		if d := l.worker.Do(t.Context(), j); d.Reason.Reason == "" || d.Delay != time.Second {
			t.Errorf("an attempt that cannot be seen yet: %+v", d.Result)
		}
		w.stop()
	})
}

// E.2: a container that is started again is created while its record is written. It is started, and
// its restart is shown, when that is done.
func TestStartWaitsForRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(_ string, attempt uint32) program {
			if attempt == 0 {
				return program{after: time.Second, code: 1}
			}
			return program{after: -1}
		}
		full := make(chan struct{})
		o := w.options()
		o.Write = func(path string, data []byte, mode records.Mode) error {
			if mode.Sync && strings.Contains(string(data), `"attempt":1`) {
				<-full
			}
			return w.write(path, data, mode)
		}
		w.wishes.set(t, one)
		w.startWith(o)
		w.settle(time.Minute)
		if made, restarts := w.server.count("CreateContainer app"), w.restarts("app"); made != 2 || restarts != 0 {
			t.Errorf("%d containers were made, %d restarts are shown", made, restarts)
		}
		w.runs()
		close(full)
		w.runs("app#1")
		w.settle(time.Second)
		if restarts := w.restarts("app"); restarts != 1 {
			t.Errorf("%d restarts are shown", restarts)
		}
		w.stop()
	})
}
