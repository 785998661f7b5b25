package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// VolumeField is the value of a field of the pod's metadata for a file of the downward API. Labels
// and annotations may be asked for as a whole: each is a line `key="value"` then, sorted by key,
// with the value quoted as in Go.
//
// # Errors
//
// ErrInvalidArgument for a path that files cannot have.
func VolumeField(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	}
	if !strings.HasPrefix(path, "metadata.") {
		return "", invalid("fieldRef.fieldPath", "field label not supported in volumes: %s", path)
	}
	return FieldRef(Input{Pod: pod}, &corev1.ObjectFieldSelector{FieldPath: path})
}

func formatMap(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, m[key]))
	}
	return strings.Join(lines, "\n")
}
