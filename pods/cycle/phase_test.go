package cycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// PH3: the phase of every pair of containers, in every state and under every policy, beside what
// the rule says in its own order.
func TestPhaseOfPairs(t *testing.T) {
	// waits was never started: its start fails for good. over0 and over1 ended twice, so that
	// whatever is restarted waits in its back-off.
	states := []string{"waits", "runs", "over0", "over1"}
	pairs := 0
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		for _, first := range []string{"app", "init", "sidecar"} {
			for _, a := range states {
				for _, b := range states {
					w := newWorld(t, podOf(t, []string{first + "=a", "app=b"}))
					w.r.Pod.Spec.RestartPolicy = policy
					for name, state := range map[string]string{"a": a, "b": b} {
						if state == "waits" {
							w.fails["StartContainer "+name] = []Result{{Reason: Reason{"CreateContainerConfigError", "no"}, Wait: true}}
						}
					}
					// An init container decides whether the other is started at all.
					for range 3 {
						w.settle()
						for name, state := range map[string]string{"a": a, "b": b} {
							if c := w.newest(name); c != nil && c.State == StateRunning && state != "runs" && state != "waits" && c.Attempt < 2 {
								w.exit(c, int32(state[4]-'0'))
							}
						}
					}
					w.settle()
					pairs++
					if got, want := w.last.Status.Phase, phaseOfPair(policy, first, a, b); got != want {
						t.Errorf("policy %s, %s %s, app %s: %s, want %s", policy, first, a, b, got, want)
					}
				}
			}
		}
	}
	if pairs != 144 {
		t.Errorf("%d pairs", pairs)
	}
}

// phaseOfPair is PH3 for an init container, a sidecar or an app container, and an app container.
func phaseOfPair(policy corev1.RestartPolicy, first, a, b string) corev1.PodPhase {
	apps := []string{a, b}
	if first != "app" {
		apps = apps[1:]
	}
	switch {
	case first == "init" && a == "over1" && policy == corev1.RestartPolicyNever: // 1.
		return corev1.PodFailed
	case first == "init" && a != "over0", first == "sidecar" && a == "waits": // 2.
		return corev1.PodPending
	}
	failed, over := false, true
	for _, s := range apps {
		if s == "waits" { // 3.
			return corev1.PodPending
		}
		over = over && s != "runs"
		failed = failed || s == "over1"
	}
	switch { // 4., 5.
	case !over, policy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case !failed:
		return corev1.PodSucceeded
	case policy == corev1.RestartPolicyNever:
		return corev1.PodFailed
	}
	return corev1.PodRunning
}
