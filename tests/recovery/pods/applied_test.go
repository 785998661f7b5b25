package pods

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/tests/node"
)

// The stages of a life of applied pods, in their order. The commands are stages of their own, so
// that kills fall into what the daemon does before it answers.
const (
	apply   = "apply"
	running = "run"
	resize  = "apply new resources"
	resized = "resize"
	remove  = "delete"
	removed = "removal"
)

var appliedStages = []string{apply, running, resize, resized, remove, removed}

// applied is what is applied, in this order. The app ignores SIGTERM and may take five minutes to
// end: only the grace period of the command ends it sooner.
const applied = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {version: $VERSION}}
data: {version: $VERSION}
---
apiVersion: v1
kind: Secret
metadata: {name: key, labels: {version: $VERSION}}
stringData: {token: $VERSION}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {version: $VERSION}}
spec:
  terminationGracePeriodSeconds: 300
  volumes:
    - {name: settings, configMap: {name: settings}}
    - {name: journal, hostPath: {path: $JOURNAL, type: Directory}}
  containers:
    - name: app
      image: $FIRST
      command: [sh, -c, "trap '' TERM; echo begun >>/journal/begun; while :; do usleep 20000; done"]
      resources: {limits: {cpu: $CPU, memory: $MEMORY}}
      volumeMounts: [{name: settings, mountPath: /settings}, {name: journal, mountPath: /journal}]
---
apiVersion: v1
kind: Pod
metadata: {name: guest, labels: {version: $VERSION}}
spec:
  runtimeClassName: wasm
  terminationGracePeriodSeconds: 1
  volumes: [{name: secret, secret: {secretName: key}}]
  containers:
    - {name: ticks, image: $GUEST, args: [tick, "20000"], resources: {limits: {cpu: $CPU, memory: $MEMORY}}, volumeMounts: [{name: secret, mountPath: /secret}]}
`

// appliedNames are the objects of applied as commands name them, and their records.
var appliedNames = []struct{ name, record string }{
	{"configmap/settings", "configmap_default_settings.json"},
	{"secret/key", "secret_default_key.json"},
	{"pod/web", "pod_default_web.json"},
	{"pod/guest", "pod_default_guest.json"},
}

// Memory limits of the two versions, in MiB.
const memoryOne, memoryTwo = 64, 96

// TestKillApplied kills the daemon while objects are applied, resized in place and deleted by
// commands, and while it carries that out. A command that is cut off leaves each object as it was
// or as it is to be, one after the other; what it has answered is kept. The command can be
// repeated.
func TestKillApplied(t *testing.T) {
	lives(t, allApplied/perApplied, perApplied, func(m *machine, t *testing.T, nth int, steps map[string]int) bool {
		return m.goThrough(t, "applied life", nth, steps, func(l *life) { (&appliedLife{life: l}).play() })
	})
}

// allApplied is how many points there are, perApplied how many are in one life: one in each stage,
// and one in a start.
const allApplied, perApplied = 42, 7

// appliedLife is a life of pods that commands make, change and delete.
type appliedLife struct {
	*life
	done    string // what the command has said
	failed  error  // how it ended
	ordered time.Time
	before  []corev1.Pod // when the stage began
	limits  map[string]int
}

func (l *appliedLife) play() {
	l.names, l.restartIn = appliedStages, running
	for _, p := range []part{
		{name: apply, act: l.applies("one", "created"), judge: l.judgeApply("", "one"), goal: yes},
		{name: running, act: nothing, goal: func() bool { return l.inForm("one") }},
		{name: resize, act: l.applies("two", "configured"), judge: l.judgeApply("one", "two"), goal: yes},
		{name: resized, act: nothing, goal: func() bool { return l.inForm("two") }},
		{name: remove, act: l.deletes, judge: l.judgeDelete, goal: yes},
		{name: removed, act: nothing, goal: l.gone},
	} {
		if p.name == resize {
			l.before, l.limits = l.listed(), l.inForce()
		}
		if !l.stage(p) {
			return
		}
		if p.name == resized {
			l.judgeResized()
		}
	}
	// The grace of the command counts, also if the server died when it had said that the pod is
	// deleted.
	if took := time.Since(l.ordered); took > node.Slow(node.Patience/2) {
		l.problem("the pods were deleted with a grace of 1 s and took %v", took)
	}
	l.nothing()
}

func yes() bool { return true }

func nothing() error { return nil }

// command runs sunaba.
func (l *appliedLife) command(args ...string) {
	cmd := exec.Command(filepath.Join(world.bin, "sunaba"), append(args, "--state", l.State)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	l.failed, l.done = cmd.Run(), out.String()
	if l.failed != nil {
		l.failed = fmt.Errorf("%v: %w: %s", args[0], l.failed, strings.TrimSpace(said.String()))
	}
}

// again is command for a server that was just started.
func (l *appliedLife) again(args ...string) {
	within(nil, func() bool {
		l.command(args...)
		return l.failed == nil || !strings.Contains(l.failed.Error(), "no server answers on")
	})
}

// file is the file of a version.
func (l *appliedLife) file(version string) string {
	cpu, memory := "500m", memoryOne
	if version == "two" {
		cpu, memory = "600m", memoryTwo
	}
	text := strings.NewReplacer("$JOURNAL", l.journal, "$VERSION", version, "$FIRST", world.first, "$GUEST", world.guest,
		"$CPU", cpu, "$MEMORY", fmt.Sprintf("%dMi", memory)).Replace(applied)
	path := filepath.Join(l.journal, version+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.problem("%v", err)
	}
	return path
}

// applies is the act of applying a version.
func (l *appliedLife) applies(version, verb string) func() error {
	return func() error {
		l.command("apply", "-f", l.file(version))
		if l.nth == 0 {
			return l.succeeded(allVerbs(verb))
		}
		return nil
	}
}

// succeeded is an error if the command did not succeed with these lines.
func (l *appliedLife) succeeded(want string) error {
	if l.failed != nil || l.done != want {
		return fmt.Errorf("the command said %q, %w; want %q", l.done, l.failed, want)
	}
	return nil
}

func allVerbs(verb string) string {
	text := ""
	for _, o := range appliedNames {
		text += o.name + " " + verb + "\n"
	}
	return text
}

// stored is the version of each applied object, "" for one that is not there. A record that cannot
// be read is a problem, and so is any other file.
func (l *appliedLife) stored() []string {
	dir := filepath.Join(l.Root, "pods", "applied")
	versions := make([]string, len(appliedNames))
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.problem("%v", err)
	}
	for _, f := range files {
		i := slices.IndexFunc(appliedNames, func(o struct{ name, record string }) bool { return o.record == f.Name() })
		if i < 0 {
			l.problem("file %s among the applied objects", f.Name())
			continue
		}
		var r struct {
			Object struct {
				Value struct {
					Metadata struct{ Labels map[string]string }
					Data     map[string]string
				}
			}
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if versions[i] = r.Object.Value.Metadata.Labels["version"]; err != nil || versions[i] == "" {
			l.problem("applied object %s: %v: %q", appliedNames[i].name, err, data)
		}
	}
	if broken, err := os.ReadDir(filepath.Join(l.Root, "pods", "broken")); len(broken) > 0 {
		l.problem("records were set aside: %v, %v", broken, err)
	}
	return versions
}

// judgeApply wants the objects in the first form or the second, and those in the second are the
// first ones of the manifest: what a pod needs is there before the pod. Then it applies them again.
func (l *appliedLife) judgeApply(old, new string) func() error {
	return func() error {
		now := l.stored()
		verbs := ""
		for i, v := range now {
			verb := "unchanged"
			switch {
			case v != old && v != new, i > 0 && v == new && now[i-1] != new:
				l.problem("after the kill the objects are of versions %q, and were of %q", now, old)
			case v == old && l.failed == nil:
				l.problem("apply has said %q, and after the kill the objects are of versions %q", l.done, now)
			}
			if v == old {
				verb = map[bool]string{true: "created", false: "configured"}[old == ""]
			}
			verbs += appliedNames[i].name + " " + verb + "\n"
		}
		for _, want := range []string{verbs, allVerbs("unchanged")} {
			l.again("apply", "-f", l.file(new))
			if err := l.succeeded(want); err != nil {
				return err
			}
		}
		return nil
	}
}

func (l *appliedLife) deletes() error {
	l.ordered = time.Now()
	l.command("delete", "-f", l.file("two"), "--grace-period=1", "--wait=false")
	if l.nth == 0 {
		return l.failed
	}
	return nil
}

// judgeDelete wants what the command said to be deleted not to be there any more, and what is
// there whole. Only a command that was cut off is repeated: its grace counts too.
func (l *appliedLife) judgeDelete() error {
	now := l.stored()
	for i, o := range appliedNames {
		kind, name, _ := strings.Cut(o.name, "/")
		said := strings.Contains(l.done, fmt.Sprintf("%s %q deleted", kind, name))
		if now[i] != "" && (said || now[i] != "two") {
			l.problem("delete has said %q, and after the kill the objects are of versions %q", l.done, now)
		}
	}
	if l.failed == nil {
		return nil
	}
	l.ordered = time.Now()
	for range 2 {
		if l.again("delete", "-f", l.file("two"), "--grace-period=1", "--wait=false", "--ignore-not-found"); l.failed != nil {
			return l.failed
		}
	}
	if now := l.stored(); !slices.Equal(now, make([]string, len(now))) {
		l.problem("after a repeated delete the objects are of versions %q", now)
	}
	return nil
}

// inForm says whether both pods run with what a version gives them.
func (l *appliedLife) inForm(version string) bool {
	memory := int64(memoryOne)
	if version == "two" {
		memory = memoryTwo
	}
	for _, c := range []struct{ pod, name string }{{"web", "app"}, {"guest", "ticks"}} {
		s, _ := l.status(c.pod, c.name)
		if s.State.Running == nil || s.Resources == nil || s.Resources.Limits.Memory().Value() != memory<<20 {
			return false
		}
		p, _ := l.podNamed(c.pod)
		if p.Labels["version"] != version || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodResizeInProgress || c.Type == corev1.PodResizePending
		}) {
			return false
		}
	}
	return true
}

func (l *appliedLife) listed() []corev1.Pod {
	all, err := l.list()
	if err != nil {
		l.problem("list the pods: %v", err)
	}
	return all
}

// inForce are the kernel's memory limits of the containers, in MiB.
func (l *appliedLife) inForce() map[string]int {
	limits := map[string]int{}
	list, err := l.ListContainers(l.ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		l.problem("list the containers: %v", err)
	}
	for _, c := range list.GetContainers() {
		limit, err := l.memoryLimit(c.GetId())
		if err != nil {
			l.problem("memory limit of %s: %v", c.GetMetadata().GetName(), err)
		}
		limits[c.GetMetadata().GetName()] = limit
	}
	return limits
}

func (l *appliedLife) memoryLimit(id string) (int, error) {
	answer, err := l.ContainerStatus(l.ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
		return 0, err
	}
	path, err := cgroup.Of(info.PID)
	if err != nil {
		return 0, err
	}
	group, err := cgroup.Open(path)
	if err != nil {
		return 0, err
	}
	name := "memory.limit_in_bytes"
	if group.Unified() {
		name = "memory.max"
	}
	data, err := os.ReadFile(group.File("memory", name))
	if err != nil {
		return 0, err
	}
	bytes, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return bytes >> 20, err
}

// judgeResized wants the same containers as before with limits that the kernel keeps: a guest's
// engine has its part in both.
func (l *appliedLife) judgeResized() {
	now := l.inForce()
	for _, name := range []string{"app", "ticks"} {
		if now[name]-l.limits[name] != memoryTwo-memoryOne {
			l.problem("the memory limits in force are %v MiB and were %v", now, l.limits)
		}
	}
	for i, p := range l.listed() {
		was := l.before[i]
		if p.UID != was.UID || p.Generation != was.Generation+1 || p.Status.ObservedGeneration != p.Generation {
			l.problem("pod %s has UID %s, generation %d, observed %d; it had UID %s, generation %d", p.Name, p.UID, p.Generation, p.Status.ObservedGeneration, was.UID, was.Generation)
		}
		for j, s := range p.Status.ContainerStatuses {
			if c := was.Status.ContainerStatuses[j]; s.ContainerID != c.ContainerID || s.RestartCount != c.RestartCount {
				l.problem("a resize restarted %s: it is container %s, %d restarts, and was %s, %d", s.Name, s.ContainerID, s.RestartCount, c.ContainerID, c.RestartCount)
			}
		}
	}
	begun, err := os.ReadFile(filepath.Join(l.journal, "begun"))
	if n := bytes.Count(begun, []byte("\n")); err != nil || n < 1 || n > 1+l.deathIn[apply]+l.deathIn[running] {
		l.problem("the app began %d times, %v", n, err)
	}
	if err := l.Sound(); err != nil {
		l.problem("with the pods: %v", err)
	}
}
