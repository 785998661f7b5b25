package runtimeclass

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func checkScheduling(s *nodev1.Scheduling) error {
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return fmt.Errorf("scheduling.nodeSelector[%s]: %s", key, strings.Join(errs, "; "))
		}
		if errs := validation.IsValidLabelValue(s.NodeSelector[key]); len(errs) > 0 {
			return fmt.Errorf("scheduling.nodeSelector[%s]: %s", key, strings.Join(errs, "; "))
		}
	}
	return nil
}

// MergeScheduling returns the pod's spec as admission would leave it: the class's node selector
// joined with the pod's, and their tolerations united without those that another one makes
// redundant. The given spec is not changed.
//
// # Errors
//
// ErrFailedPrecondition, if both select a different value for one label.
func MergeScheduling(pod *corev1.PodSpec, rc *nodev1.RuntimeClass) (*corev1.PodSpec, error) {
	out := pod.DeepCopy()
	if rc == nil || rc.Scheduling == nil {
		return out, nil
	}
	for _, key := range slices.Sorted(maps.Keys(rc.Scheduling.NodeSelector)) {
		want := rc.Scheduling.NodeSelector[key]
		if have, ok := out.NodeSelector[key]; ok && have != want {
			return nil, fmt.Errorf("merge scheduling of RuntimeClass %q: nodeSelector[%s] is %q in the class and %q in the pod: %w",
				rc.Name, key, want, have, errdefs.ErrFailedPrecondition)
		}
		if out.NodeSelector == nil {
			out.NodeSelector = map[string]string{}
		}
		out.NodeSelector[key] = want
	}
	out.Tolerations = unite(slices.Concat(out.Tolerations, rc.Scheduling.Tolerations))
	return out, nil
}

// unite leaves out what another toleration includes; of two that are equal the first stays.
func unite(all []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for i, t := range all {
		redundant := false
		for j, other := range all {
			if i != j && tolerates(other, t) && (j < i || !tolerates(t, other)) {
				redundant = true
			}
		}
		if !redundant {
			out = append(out, t)
		}
	}
	return out
}

// tolerates says that whatever narrow tolerates, wide does too.
func tolerates(wide, narrow corev1.Toleration) bool {
	operator := func(t corev1.Toleration) corev1.TolerationOperator {
		return cmp.Or(t.Operator, corev1.TolerationOpEqual)
	}
	if wide.Key != narrow.Key && (wide.Key != "" || operator(wide) != corev1.TolerationOpExists) {
		return false
	}
	if wide.Effect != narrow.Effect && wide.Effect != "" {
		return false
	}
	if wide.TolerationSeconds != nil && (narrow.TolerationSeconds == nil || *wide.TolerationSeconds < *narrow.TolerationSeconds) {
		return false
	}
	if operator(wide) == corev1.TolerationOpExists {
		return true
	}
	return operator(narrow) == operator(wide) && narrow.Value == wide.Value
}
