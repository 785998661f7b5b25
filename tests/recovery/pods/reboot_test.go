package pods

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
)

// rebootPods are pods of every policy. What a container notes are lines of the file of its name in
// the journal, which is no part of the node's disk: what it did and when, in seconds since the
// machine was really started.
const rebootPods = `
apiVersion: v1
kind: ConfigMap
metadata: {name: programs}
data:
  begin.sh: |
    note() { read now rest </proc/uptime; echo "$1 $now" >>/journal/$NAME; }
    note begin
    [ "$(cat /secret/token)" = s3cret ] || note lost
    [ "$NAME" = init ] || [ -s /work/made ] || note lost
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {token: s3cret}
---
` + always + `
---
apiVersion: v1
kind: Pod
metadata: {name: failing}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: OnFailure
  volumes: &volumes
    - {name: programs, configMap: {name: programs}}
    - {name: secret, secret: {secretName: key}}
    - {name: work, emptyDir: {}}
    - {name: journal, hostPath: {path: $JOURNAL}}
  initContainers:
    - {name: init, image: $FIRST, command: [sh, -c, "echo made >/work/made"], volumeMounts: [{name: work, mountPath: /work}]}
  containers:
    - name: finished
      image: $FIRST
      command: [sh, -c, ". /programs/begin.sh"]
      env: [{name: NAME, value: finished}]
      volumeMounts: &mounts
        - {name: programs, mountPath: /programs}
        - {name: secret, mountPath: /secret}
        - {name: work, mountPath: /work}
        - {name: journal, mountPath: /journal}
    - {name: runs, image: $FIRST, command: [sh, -c, ". /programs/begin.sh; sleep 100000"], env: [{name: NAME, value: runs}], volumeMounts: *mounts}
    - {name: crashes, image: $FIRST, command: [sh, -c, ". /programs/begin.sh; note end; exit 3"], env: [{name: NAME, value: crashes}], volumeMounts: *mounts}
---
apiVersion: v1
kind: Pod
metadata: {name: never}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers: [{name: app, image: $FIRST, command: [sleep, "100000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: over}
spec:
  restartPolicy: Never
  containers: [{name: app, image: $FIRST, command: ["true"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: guest}
spec:
  runtimeClassName: wasm
  terminationGracePeriodSeconds: 1
  containers: [{name: ticks, image: $GUEST, args: [tick, "20000"]}]
`

const always = `
apiVersion: v1
kind: Pod
metadata: {name: always}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
    - {name: programs, configMap: {name: programs}}
    - {name: secret, secret: {secretName: key}}
    - {name: work, emptyDir: {medium: Memory}}
    - {name: journal, hostPath: {path: $JOURNAL}}
  initContainers:
    - name: init
      image: $FIRST
      command: [sh, -c, ". /programs/begin.sh; [ ! -e /work/made ] || note kept; echo made >/work/made"]
      env: [{name: NAME, value: init}]
      volumeMounts: &mounts
        - {name: programs, mountPath: /programs}
        - {name: secret, mountPath: /secret}
        - {name: work, mountPath: /work}
        - {name: journal, mountPath: /journal}
    - {name: side, restartPolicy: Always, image: $FIRST, command: [sh, -c, ". /programs/begin.sh; sleep 100000"], env: [{name: NAME, value: side}], volumeMounts: *mounts}
  containers:
    - {name: app, image: $FIRST, command: [sh, -c, ". /programs/begin.sh; sleep 100000"], env: [{name: NAME, value: app}], volumeMounts: *mounts}
`

// rebootBackOff is the back-off of the container that crashes: the first and the longest.
const rebootBackOff = 5 * time.Second

// noted is within which time the end of a container is written. A power cut may lose that: a
// container that crashed before it may be started at once.
const noted = 1500 * time.Millisecond

// turns are what is done with the power in TestReboot. The first is a reboot of pods that run, the
// second of a machine whose clock starts behind all that is on record; the others are cuts at
// moments of their start.
const turns = 6

// rebooted is a node on a disk of its own, whose machine is switched off and on.
type rebooted struct {
	*machine
	t       *testing.T
	disk    *disk.Image
	journal string
	bootID  string // the file that stands for the kernel's
	before  map[string]corev1.Pod
	unnoted [][2]float64 // from when until when ends were lost with the power, in seconds of uptime
}

// TestReboot switches a machine off and on whose pods are of manifests, in order and by cuts of its
// power: pods that were not over run again with their UIDs, one restart more, volumes and Secrets;
// those of policy Never have failed for it, a back-off goes on, and nothing runs twice (RB2, RB3,
// RB4, RB6, SB2).
func TestReboot(t *testing.T) {
	begun := time.Now()
	r := newRebooted(t)
	dice := rand.New(rand.NewPCG(*seed, 0))
	r.settled("at first")
	r.check(r.disk.Sync())
	for turn := range turns {
		what := fmt.Sprintf("turn %d", turn)
		started := time.Now()
		switch {
		case turn == 0:
			time.Sleep(noted)
			r.off(false, nil)
		case turn == 1:
			time.Sleep(noted)
			r.off(false, r.future)
		default:
			time.Sleep(time.Duration(dice.IntN(1500)) * time.Millisecond)
			r.off(true, nil)
		}
		r.listed()
		if turn < 2 || turn == turns-1 {
			r.settled(what)
		}
		r.judge(what, turn < 2)
		t.Logf("%s: %.1f s", what, time.Since(started).Seconds())
		if t.Failed() {
			t.Logf("the daemon said:\n%s", r.DaemonLog())
			break
		}
	}
	r.end()
	t.Logf("seed %d: %d turns in %.1f s", *seed, turns, time.Since(begun).Seconds())
}

// bootFile is the kernel's.
var bootFile = filepath.Join("/proc", boot.File)

func newRebooted(t *testing.T) *rebooted {
	t.Helper()
	r := &rebooted{t: t, bootID: filepath.Join(world.folder, "boot-id"), before: map[string]corev1.Pod{}}
	r.check(node.Loopback())
	r.boot(0)
	r.check(unix.Mount(r.bootID, bootFile, "", unix.MS_BIND, ""))
	t.Cleanup(func() { r.check(unix.Unmount(bootFile, unix.MNT_DETACH)) })
	var err error
	r.journal, err = os.MkdirTemp(world.folder, "journal-")
	r.check(err)
	r.disk, err = disk.NewImage(world.folder)
	r.check(err)
	t.Cleanup(func() { r.check(unix.Unmount(r.disk.Dir, unix.MNT_DETACH)) })
	dir := filepath.Join(r.disk.Dir, "node")
	r.check(os.Mkdir(dir, 0o755))
	r.machine, err = beginIn(t, dir, strings.Replace(config, `crash_loop_max = "1s"`, fmt.Sprintf("crash_loop_max = %q", rebootBackOff), 1))
	r.check(err)
	text := strings.NewReplacer("$JOURNAL", r.journal, "$FIRST", world.first, "$GUEST", world.guest).Replace(rebootPods)
	r.check(os.WriteFile(r.manifest(), []byte(text), 0o600))
	return r
}

func (r *rebooted) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// boot gives the machine a new name of its boot.
func (r *rebooted) boot(n int64) {
	r.check(os.WriteFile(r.bootID, fmt.Appendf(nil, "00000000-0000-4000-8000-%012d\n", n), 0o444))
}

// off switches the machine off and on, by a cut of its power or in order. off, if it is not nil, is
// called in between.
func (r *rebooted) off(cut bool, between func()) {
	r.t.Helper()
	list, err := r.ListPodSandbox(r.ctx, &cri.ListPodSandboxRequest{})
	r.check(err)
	for _, s := range list.GetItems() {
		r.Ran(s.GetId())
	}
	r.before = map[string]corev1.Pod{}
	all, err := r.list()
	r.check(err)
	for _, p := range all {
		r.before[p.Name] = p
	}
	copied, first := "", uptime()-noted.Seconds()
	if cut {
		r.check(unix.Kill(r.DaemonPID(), unix.SIGSTOP))
		copied, err = r.disk.Cut()
		r.check(err)
	}
	r.check(r.SignalDaemon(unix.SIGKILL))
	r.check(r.PowerOff(r.Pods()))
	if cut {
		r.unnoted = append(r.unnoted, [2]float64{first, uptime()})
		r.check(r.disk.Exchange(copied))
		r.check(os.RemoveAll(r.State)) // it is in memory on a real machine
	}
	if between != nil {
		between()
	}
	r.boot(node.Serial())
	r.check(r.StartDaemon(r.ctx))
}

// future dates all that is on record of pods twenty years on, as a machine finds it whose clock
// was lost.
func (r *rebooted) future() {
	files, err := filepath.Glob(filepath.Join(r.Root, "pods", "*", "pod.json"))
	if err != nil || len(files) < 5 {
		r.t.Fatalf("records %v, %v", files, err)
	}
	year := regexp.MustCompile(`"20(\d\d)-(\d\d-\d\dT)`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		r.check(err)
		now := time.Now().Year() % 100
		data = year.ReplaceAll(data, fmt.Appendf(nil, `"20%d-$2`, now+20))
		r.check(os.WriteFile(file, data, 0o600))
	}
}

// listed waits until the agent answers with all pods that it had.
func (r *rebooted) listed() {
	r.t.Helper()
	if !within(nil, func() bool { all, err := r.list(); return err == nil && len(all) >= len(r.before) }) {
		r.t.Fatalf("the pods are not there: %s\nthe daemon said:\n%s", (&life{machine: r.machine}).waits(), r.DaemonLog())
	}
}

// settled waits until all pods are as they are to be.
func (r *rebooted) settled(what string) {
	r.t.Helper()
	var state string
	if !within(nil, func() bool { state = r.unsettled(); return state == "" }) {
		r.t.Fatalf("%s: %s\n%s\nthe daemon said:\n%s", what, state, (&life{machine: r.machine}).waits(), r.DaemonLog())
	}
}

// unsettled is what is not yet as it is to be, "" for nothing.
func (r *rebooted) unsettled() string {
	for _, c := range []struct{ pod, name string }{{"always", "app"}, {"always", "side"}, {"failing", "runs"}, {"guest", "ticks"}} {
		if s, _ := r.status(c.pod, c.name); s.State.Running == nil {
			return c.pod + "/" + c.name + " does not run"
		}
	}
	if s, _ := r.status("failing", "crashes"); s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || s.RestartCount < 1 {
		return "failing/crashes does not wait for its back-off"
	}
	if p, _ := r.podNamed("over"); p.Status.Phase != corev1.PodSucceeded {
		return "over is " + string(p.Status.Phase)
	}
	if p, _ := r.podNamed("never"); p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodFailed {
		return "never is " + string(p.Status.Phase)
	}
	return ""
}

// judge looks at the pods after the machine was started. whole says that they had settled.
func (r *rebooted) judge(what string, whole bool) {
	bad := func(format string, args ...any) {
		r.t.Helper()
		r.t.Errorf(what+": "+format, args...)
	}
	for name, was := range r.before {
		is, _ := r.podNamed(name)
		if is.UID != was.UID {
			bad("%s has UID %q, had %q", name, is.UID, was.UID)
		}
		for _, before := range statuses(was) {
			now, _ := r.status(name, before.Name)
			more := now.RestartCount - before.RestartCount
			ran := before.State.Running != nil
			switch {
			case more < 0:
				bad("the restart count of %s/%s fell from %d to %d", name, before.Name, before.RestartCount, now.RestartCount)
			case whole && name != "never" && ran && more != 1:
				bad("%s/%s ran and has %d restarts more", name, before.Name, more)
			case whole && ran && name == "always" && (now.LastTerminationState.Terminated == nil || now.LastTerminationState.Terminated.ExitCode < 137):
				bad("%s/%s ended with %+v", name, before.Name, now.LastTerminationState)
			case before.Name == "finished" && more != 0:
				bad("what had ended well is started again")
			}
		}
		for kind, count := range r.running(string(was.UID)) {
			if count > 1 {
				bad("%d of %s/%s run", count, name, kind)
			}
		}
	}
	r.judgeEnded(bad)
	r.judgeNotes(bad)
	if err := r.Sound(); err != nil {
		bad("%v", err)
	}
}

// judgeEnded looks at the pods of policy Never.
func (r *rebooted) judgeEnded(bad func(string, ...any)) {
	disrupted := func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		})
	}
	if p, _ := r.podNamed("never"); p.Status.Phase != corev1.PodFailed || !disrupted(p) {
		bad("never is %s, conditions %v", p.Status.Phase, p.Status.Conditions)
	}
	if p, _ := r.podNamed("over"); p.Status.Phase != corev1.PodSucceeded || disrupted(p) {
		bad("over is %s, conditions %v", p.Status.Phase, p.Status.Conditions)
	}
}

// judgeNotes looks at what containers have noted: files were there, memory was empty, the back-off
// was kept where the power did not take the end before it, and each run is counted.
func (r *rebooted) judgeNotes(bad func(string, ...any)) {
	for pod, names := range map[string][]string{"always": {"init", "side", "app"}, "failing": {"finished", "runs", "crashes"}} {
		for _, name := range names {
			runs, ended := 0, 0.0
			data, err := os.ReadFile(filepath.Join(r.journal, name))
			if err != nil {
				bad("%v", err)
			}
			for line := range strings.Lines(string(data)) {
				var did string
				var at float64
				if _, err := fmt.Sscanf(line, "%s %f\n", &did, &at); err != nil {
					bad("line %q of %s: %v", line, name, err)
				}
				switch did {
				case "begin":
					lost := slices.ContainsFunc(r.unnoted, func(span [2]float64) bool { return span[0] <= ended && ended <= span[1] })
					// The first restart waits for nothing.
					if runs++; runs > 2 && ended > 0 && !lost && at-ended < rebootBackOff.Seconds()-slack {
						bad("run %d of %s began %.2f s after the end of the run before", runs, name, at-ended)
					}
				case "end":
					ended = at
				default:
					bad("%s noted %q", name, line)
				}
			}
			if s, _ := r.status(pod, name); int(s.RestartCount) < runs-1 {
				bad("%s ran %d times, and its count is %d", name, runs, s.RestartCount)
			}
		}
	}
}

// running is how many containers of a pod run, by name, and under "sandbox" how many sandboxes do.
func (r *rebooted) running(uid string) map[string]int {
	count := map[string]int{}
	label := map[string]string{"io.kubernetes.pod.uid": uid}
	sandboxes, err := r.ListPodSandbox(r.ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		LabelSelector: label, State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
	}})
	containers, cerr := r.ListContainers(r.ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		LabelSelector: label, State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	r.check(errors.Join(err, cerr))
	count["sandbox"] = len(sandboxes.GetItems())
	for _, c := range containers.GetContainers() {
		count[c.GetMetadata().GetName()]++
	}
	return count
}

// end removes the pods: nothing is left of them.
func (r *rebooted) end() {
	r.check(os.Remove(r.manifest()))
	if l := (&life{machine: r.machine}); !within(nil, l.gone) {
		r.t.Errorf("the pods do not end: %s", l.waits())
	}
	if left, err := r.Left(); err != nil || len(left) > 0 {
		r.t.Errorf("left over, %v:\n%s", err, strings.Join(left, "\n"))
	}
	r.check(errors.Join(r.client.Close(), r.Finish()))
}
