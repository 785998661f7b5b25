package cycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRules plays the text tables in testdata: each begins with its rules' numbers in a line "==
// …".
func TestRules(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no tables", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split("\n"+string(data), "\n== ")[1:] {
			name, body, _ := strings.Cut(part, "\n")
			t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) { (&script{t: t}).play(body) })
		}
	}
}

// script plays one table.
type script struct {
	t *testing.T
	*world
	line string
}

func (s *script) bad(format string, args ...any) {
	s.t.Helper()
	if s.world != nil {
		s.world.fatalf("%s: %s", s.line, fmt.Sprintf(format, args...))
	}
	s.t.Fatalf("%s: %s", s.line, fmt.Sprintf(format, args...))
}

func (s *script) play(body string) {
	for _, line := range strings.Split(body, "\n") {
		if s.line = strings.TrimSpace(line); s.line == "" || s.line[0] == '#' {
			continue
		}
		f := strings.Fields(s.line)
		switch {
		case f[0] == "pod":
			s.world = newWorld(s.t, podOf(s.t, f[1:]))
		case f[0] == "expect":
			s.expect(f[1], strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(s.line, "expect"), " "+f[1])))
		case f[0][0] == '+':
			s.advance(s.duration(f[0][1:]))
		default:
			s.do(f)
		}
	}
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.bad("%v", err)
	}
	return d
}

// do executes what happens in a table.
func (s *script) do(f []string) {
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	switch f[0] {
	case "settle":
	case "exit":
		code, _ := strconv.Atoi(arg(2))
		c := s.newest(arg(1))
		s.exit(c, int32(code))
		if len(f) > 3 {
			c.Termination = strings.Repeat("é", len(f[3])*1000)
		}
	case "vanish":
		for i, c := range s.containers {
			if c == s.newest(arg(1)) {
				s.containers = append(s.containers[:i], s.containers[i+1:]...)
				break
			}
		}
	case "created":
		s.newest(arg(1)).State = StateCreated
	case "unknown":
		s.newest(arg(1)).State = StateUnknown
	case "probe":
		c, result := s.newest(arg(1)), map[string]ProbeResult{"pass": ProbeSuccess, "fail": ProbeFailure, "unknown": ProbeUnknown}[arg(3)]
		*map[string]*ProbeResult{"startup": &c.Startup, "readiness": &c.Readiness, "liveness": &c.Liveness}[arg(2)] = result
	case "stubborn":
		s.stubborn[arg(1)] = true
	case "immortal":
		s.immortal[arg(1)] = true
	case "fail":
		s.fail(f)
		return
	case "hold":
		s.held[Verb(arg(1))] = true
		return
	case "release":
		delete(s.held, Verb(arg(1)))
		s.finish()
	case "max":
		s.set.CrashLoopMax = s.duration(arg(1))
		return
	case "early":
		s.early = true
		return
	case "lazy":
		s.lazy = true
		return
	case "noaddress":
		s.sandboxes[0].IPs = nil
	case "network":
		s.sandboxes[0].HostNetwork = !s.sandboxes[0].HostNetwork
	case "twin":
		s.sandboxes = append(s.sandboxes, &Sandbox{ID: "twin", Attempt: 5, Ready: true, IPs: []string{"10.0.0.9"}})
	case "lose":
		for _, x := range s.sandboxes {
			x.Ready = false
		}
	case "clock": // set to another time
		s.now = s.now.Add(s.duration(arg(1)))
	default:
		s.order(f[0], arg(1), arg(2))
	}
	s.settle()
}

// fail makes the next action of a verb fail: fail VERB [CONTAINER] REASON [wait|DELAY].
func (s *script) fail(f []string) {
	key, rest := f[1]+" ", f[2:]
	if len(rest) > 1 && (strings.HasSuffix(f[1], "Container") || strings.HasPrefix(f[1], "RunP") || f[1] == "PullImage") {
		key, rest = key+rest[0], rest[1:]
	}
	res := Result{Reason: Reason{rest[0], "text of " + rest[0]}}
	if len(rest) > 1 && rest[1] == "wait" {
		res.Wait = true
	} else if len(rest) > 1 {
		res.Delay = s.duration(rest[1])
	}
	s.fails[key] = append(s.fails[key], res)
}

// order gives the pod an order from outside.
func (s *script) order(verb, first, second string) {
	var err error
	switch verb {
	case "delete":
		s.r.Delete(s.duration(first), s.now)
	case "restart":
		err = s.r.Restart(strings.FieldsFunc(first, func(r rune) bool { return r == ',' }), Reason{"Restart", "Container is restarted by command"})
	case "end":
		s.r.End(Final{corev1.PodFailed, "Evicted", "The node was low on resource: memory. "}, s.duration(first),
			&Reason{terminationByAgent, "The node was low on resource: memory. "}, s.now)
	case "interrupt":
		s.r.Interrupt(s.duration(first), s.now)
	case "resume":
		s.r.Resume()
	case "edit":
		pod := s.r.Pod.DeepCopy()
		for i := range pod.Spec.Containers {
			if pod.Spec.Containers[i].Name == first {
				pod.Spec.Containers[i].Image = second
			}
		}
		for i := range pod.Spec.InitContainers {
			if pod.Spec.InitContainers[i].Name == first {
				pod.Spec.InitContainers[i].Image = second
			}
		}
		pod.Generation++
		s.r.Edit(pod)
	case "debug":
		err = s.r.AddEphemeral(corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: first, Image: "busybox"}})
	case "reboot":
		s.reboot()
	case "reload":
		s.reload()
	case "changed":
		s.changed = true
	case "pending":
		s.r.Pending = &Reason{first, "it waits"}
	case "admit":
		s.r.Pending = nil
	default:
		s.bad("unknown command")
	}
	if second == "refused" {
		if err == nil {
			s.bad("was not refused")
		}
		return
	}
	if err != nil {
		s.bad("%v", err)
	}
	s.save()
}

// reboot ends all at once and loses what is not written.
func (w *world) reboot() {
	w.boot++
	w.reload()
	for _, c := range w.containers {
		w.exit(c, lostExit)
	}
	for _, s := range w.sandboxes {
		s.Ready = false
	}
}

// expect compares with what is.
func (s *script) expect(what, want string) {
	st := s.last.Status
	var got string
	switch what {
	case "actions":
		got = strings.Join(s.log, "; ")
		s.log = nil
	case "events":
		for _, e := range s.events {
			got += strings.TrimSpace(e.Type+" "+e.Reason+" "+e.Container) + ": " + e.Message + "; "
		}
		got = strings.TrimSuffix(got, "; ")
		s.events = nil
	case "phase":
		got = strings.TrimSpace(string(st.Phase) + " " + st.Reason)
	case "columns":
		pod := s.r.Pod.DeepCopy()
		pod.Status = st
		a, b, c := Columns(pod, s.now)
		got = a + " " + b + " " + c
	case "waiting":
		got = s.last.Waiting
	case "wake":
		if got = "never"; !s.last.Wake.IsZero() {
			got = s.last.Wake.Sub(s.start).String()
		}
	case "over":
		got = fmt.Sprint(s.over)
	case "probes":
		got = s.probes()
	case "condition":
		got = s.condition(strings.Fields(want)[0])
	case "state", "last":
		name := strings.Fields(want)[0]
		got = name + " " + s.state(name, what == "last")
	case "started", "ready":
		name := strings.Fields(want)[0]
		c := s.status(name)
		got = fmt.Sprint(name, " ", c.Ready)
		if what == "started" {
			got = fmt.Sprint(name, " ", c.Started != nil && *c.Started)
		}
	case "restarts":
		name := strings.Fields(want)[0]
		got = fmt.Sprint(name, " ", s.status(name).RestartCount)
	default:
		s.bad("unknown expectation")
	}
	if got != want {
		s.bad("got  %s", got)
	}
}

// probes are the probes that run.
func (s *script) probes() (got string) {
	for _, p := range s.last.Probes {
		got += p.Container
		if p.Startup {
			got += " startup"
		}
		if p.Readiness {
			got += " readiness"
		}
		if p.Liveness {
			got += " liveness"
		}
		got += "; "
	}
	return strings.TrimSuffix(got, "; ")
}

// condition is one of the status in words.
func (s *script) condition(name string) string {
	c := find(&s.last.Status, corev1.PodConditionType(name))
	if c == nil {
		return name + " none"
	}
	return strings.Join(strings.Fields(strings.Join([]string{name, string(c.Status), c.Reason, c.Message}, " ")), " ")
}

// status is a container's.
func (s *script) status(name string) corev1.ContainerStatus {
	st := s.last.Status
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name == name {
				return c
			}
		}
	}
	s.bad("no status of %s", name)
	return corev1.ContainerStatus{}
}

// state is a container's state in words.
func (s *script) state(name string, last bool) string {
	c := s.status(name)
	state := c.State
	if last {
		state = c.LastTerminationState
	}
	switch {
	case state.Running != nil:
		return "running"
	case state.Waiting != nil:
		return strings.TrimSpace("waiting " + state.Waiting.Reason + " " + state.Waiting.Message)
	case state.Terminated != nil:
		t := state.Terminated
		if len(t.Message) > 100 {
			return fmt.Sprintf("terminated %d %s %d bytes", t.ExitCode, t.Reason, len(t.Message))
		}
		return strings.TrimSpace(fmt.Sprintf("terminated %d %s %s", t.ExitCode, t.Reason, t.Message))
	}
	return "none"
}

// podOf builds a pod from words: policy=, grace=, deadline=, and init=, sidecar=, app=
// NAME[:FLAG…].
func podOf(t *testing.T, words []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID("uid"), Generation: 1}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		number, err := strconv.ParseInt(value, 10, 64)
		switch key {
		case "policy":
			pod.Spec.RestartPolicy, err = corev1.RestartPolicy(value), nil
		case "grace":
			pod.Spec.TerminationGracePeriodSeconds = &number
		case "deadline":
			pod.Spec.ActiveDeadlineSeconds = &number
		case "hostNetwork":
			pod.Spec.HostNetwork, err = true, nil
		case "app":
			pod.Spec.Containers, err = append(pod.Spec.Containers, containerOf(t, value)), nil
		case "init", "sidecar":
			c := containerOf(t, value)
			if always := corev1.ContainerRestartPolicyAlways; key == "sidecar" {
				c.RestartPolicy = &always
			}
			pod.Spec.InitContainers, err = append(pod.Spec.InitContainers, c), nil
		default:
			err = errors.New("unknown word")
		}
		if err != nil {
			t.Fatal(word, err)
		}
	}
	return pod
}

// containerOf builds a container from NAME[:FLAG…].
func containerOf(t *testing.T, text string) corev1.Container {
	words := strings.Split(text, ":")
	c := corev1.Container{Name: words[0], Image: "i"}
	c.Lifecycle = &corev1.Lifecycle{}
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	probe := func() *corev1.Probe { return &corev1.Probe{PeriodSeconds: 1} }
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		number, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "poststart":
			c.Lifecycle.PostStart = hook
		case "prestop":
			c.Lifecycle.PreStop = hook
		case "startup":
			c.StartupProbe = probe()
		case "readiness":
			c.ReadinessProbe = probe()
		case "liveness":
			if c.LivenessProbe = probe(); value != "" {
				c.LivenessProbe.TerminationGracePeriodSeconds = &number
			}
		case "policy":
			p := corev1.ContainerRestartPolicy(value)
			c.RestartPolicy = &p
		case "rule":
			c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestart,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{int32(number)}}})
		case "notrule":
			c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestart,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{int32(number)}}})
		default:
			t.Fatalf("unknown flag %q", word)
		}
	}
	return c
}
