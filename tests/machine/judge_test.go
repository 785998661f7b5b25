package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// statuses are those of all containers of a pod.
func statuses(p corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// disrupted is the condition that a pod was ended from outside.
func disrupted(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// judge compares the pods with those before the boot: none is another one, counts have not fallen,
// and nothing is there twice. exact says that what ran has been started once since.
func (m *machine) judge(exact bool) {
	m.t.Helper()
	all := m.pods()
	for name, was := range m.Pods {
		is := all[name]
		if is.UID != was.UID || !is.Status.StartTime.Equal(was.Status.StartTime) && was.Status.StartTime != nil {
			m.t.Errorf("%s is %s of %v, was %s of %v", name, is.UID, is.Status.StartTime, was.UID, was.Status.StartTime)
		}
		for _, before := range statuses(was) {
			for _, now := range statuses(is) {
				more := now.RestartCount - before.RestartCount
				if now.Name != before.Name {
					continue
				}
				if more < 0 || exact && name != "never" && slices.Contains(m.Settled, name) && runs(before) && more != 1 {
					m.t.Errorf("%s/%s has %d restarts, had %d", name, now.Name, now.RestartCount, before.RestartCount)
				}
			}
		}
		if restarted := name != "never" && name != "over"; restarted && (disrupted(is) || is.Status.Reason != "") {
			m.t.Errorf("%s runs again and has reason %q, conditions %v", name, is.Status.Reason, is.Status.Conditions)
		}
	}
	if p := all["never"]; p.Status.Phase != corev1.PodFailed || !disrupted(p) {
		m.t.Errorf("never is %s, conditions %v", p.Status.Phase, p.Status.Conditions)
	}
	if p := all["over"]; p.Status.Phase != corev1.PodSucceeded || disrupted(p) {
		m.t.Errorf("over is %s, conditions %v", p.Status.Phase, p.Status.Conditions)
	}
	m.once(all)
	m.sound()
}

// once wants one sandbox of each pod that runs, and one running container of each name, in the
// server and among the kernel's cgroups.
func (m *machine) once(all map[string]corev1.Pod) {
	for name, p := range all {
		sandboxes := strings.Fields(crictl(m.t, "pods", "-q", "--state", "ready", "--label", "io.kubernetes.pod.uid="+string(p.UID)))
		want := 1
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			want = 0
		}
		if len(sandboxes) != want {
			m.t.Errorf("%s is %s and has sandboxes %v", name, p.Status.Phase, sandboxes)
		}
		for _, s := range statuses(p) {
			running := strings.Fields(crictl(m.t, "ps", "-q", "--label", "io.kubernetes.pod.uid="+string(p.UID), "--name", "^"+s.Name+"$"))
			if (len(running) == 1) != runs(s) || len(running) > 1 {
				m.t.Errorf("%s/%s is %+v, and %v run", name, s.Name, s.State, running)
			}
		}
	}
	slices, err := filepath.Glob("/sys/fs/cgroup/sunaba.slice/sunaba-pod*.slice")
	check(m.t, err)
	ready := strings.Fields(crictl(m.t, "pods", "-q", "--state", "ready"))
	if len(slices) != len(ready) {
		m.t.Errorf("cgroups %v of the sandboxes %v", slices, ready)
	}
}

// sound wants records that are whole.
func (m *machine) sound() {
	if out := run(m.t, "sunaba", "check", "--config", "/etc/sunaba/config.toml"); !strings.HasPrefix(out, "0 findings") {
		m.t.Errorf("the check says:\n%s", out)
	}
	if out := run(m.t, "sunaba", "get", "manifests", "--no-headers"); strings.Count(out, " Loaded ") != len(strings.Split(out, "\n")) {
		m.t.Errorf("manifests:\n%s", out)
	}
	check(m.t, filepath.WalkDir("/var/lib/sunaba", func(path string, entry os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".damaged") {
			m.t.Errorf("%s is damaged", path)
		}
		return err
	}))
}

// rebooted looks at what a shutdown in order alone leaves.
func (m *machine) rebooted() {
	all := m.pods()
	for name, want := range map[string]int32{"polite": 0, "last": 0, "deaf": 137} {
		last := statuses(all[name])[0].LastTerminationState.Terminated
		if last == nil || last.ExitCode != want {
			m.t.Errorf("%s ended with %+v, want %d", name, last, want)
		}
	}
	if p := all["never"]; p.Status.Reason != "Terminated" || p.Status.Message != "Pod was terminated in response to imminent node shutdown." {
		m.t.Errorf("never: %s: %s", p.Status.Reason, p.Status.Message)
	}
	if starts := run(m.t, "sunaba", "exec", "polite", "--", "cat", "/kept/starts"); starts != "start\nstart" {
		m.t.Errorf("the volume of polite has %q", starts)
	}
}

// end removes all pods. Nothing is left of them.
func (m *machine) end() {
	files, err := filepath.Glob("/etc/sunaba/manifests/*")
	check(m.t, err)
	for _, file := range files {
		check(m.t, os.Remove(file))
	}
	m.await("all pods end", func() string {
		if all := m.pods(); len(all) > 0 {
			return fmt.Sprint(len(all), " pods are there")
		}
		return crictl(m.t, "pods", "-q")
	})
	run(m.t, "systemctl", "stop", "sunaba")
	for _, pattern := range []string{"/sys/fs/cgroup/sunaba.slice/*/", "/var/lib/sunaba/pods/*-*-*-*-*", "/run/sunaba/sandboxes/*"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			m.t.Errorf("left over: %v, %v", left, err)
		}
	}
	if units := run(m.t, "systemctl", "list-units", "--no-legend", "--plain", "sunaba*pod*"); units != "" {
		m.t.Errorf("left over:\n%s", units)
	}
}
