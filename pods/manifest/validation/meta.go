package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// maxAnnotations is the size of an object's annotations in bytes, the API server's.
const maxAnnotations = 256 << 10

// reserved are annotations that the agent sets. A manifest that was printed by sunaba has them, and
// they are left out of it.
var reserved = []string{
	"kubernetes.io/config.source", "kubernetes.io/config.hash", "kubernetes.io/config.seen", "kubernetes.io/config.mirror",
	"io.sunaba.agent", "io.sunaba.file", "io.sunaba.run",
}

// Object checks name, namespace, labels and annotations of an object that has a namespace.
func Object(p *fields.Problems, m metav1.Object) {
	if m.GetName() == "" {
		p.Add("metadata.name", "is required")
	} else {
		p.Value("metadata.name", m.GetName(), validation.IsDNS1123Subdomain(m.GetName())...)
	}
	p.Value("metadata.namespace", m.GetNamespace(), validation.IsDNS1123Label(m.GetNamespace())...)
	Meta(p, m)
}

// Meta checks labels and annotations, and removes the annotations that the agent sets.
func Meta(p *fields.Problems, m metav1.Object) {
	checkLabels(p, "metadata.labels", m.GetLabels())
	annotations := m.GetAnnotations()
	size := 0
	for _, key := range sorted(annotations) {
		if slices.Contains(reserved, key) {
			delete(annotations, key)
			continue
		}
		size += len(key) + len(annotations[key])
		p.Value("metadata.annotations", key, validation.IsQualifiedName(strings.ToLower(key))...)
	}
	if size > maxAnnotations {
		p.Add("metadata.annotations", "have %d bytes; at most %d can be had", size, maxAnnotations)
	}
	if len(annotations) == 0 {
		m.SetAnnotations(nil)
	}
}

// checkLabels checks labels, and what selects them.
func checkLabels(p *fields.Problems, path string, labels map[string]string) {
	for _, key := range sorted(labels) {
		p.Value(path, key, validation.IsQualifiedName(key)...)
		p.Value(fmt.Sprintf("%s[%s]", path, key), labels[key], validation.IsValidLabelValue(labels[key])...)
	}
}

// sorted are a map's keys in order, so that errors are told in the same order each time.
func sorted[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
