package validation

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// Fields of a Pod that variables (EV5) and files (VO12) may have as their value. Labels and
// annotations as a whole are for files, single ones for both.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	fileFields = []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"}
)

// SplitFieldPath splits "metadata.labels['app']" into "metadata.labels", "app" and true. A path
// without a key is returned as it is, with false.
func SplitFieldPath(path string) (field, key string, ok bool) {
	field, rest, found := strings.Cut(path, "['")
	key, closed := strings.CutSuffix(rest, "']")
	if !found || !closed {
		return path, "", false
	}
	return field, key, true
}

// checkFieldRef checks a reference to one of the allowed fields, or to one label or annotation.
func checkFieldRef(p *fields.Problems, path string, r *corev1.ObjectFieldSelector, allowed []string) {
	if r.APIVersion != "v1" {
		p.Value(path+".apiVersion", r.APIVersion, "must be v1")
	}
	if !p.Required(path+".fieldPath", r.FieldPath) {
		return
	}
	switch field, key, ok := SplitFieldPath(r.FieldPath); {
	case ok && field == "metadata.labels":
		p.Value(path+".fieldPath", r.FieldPath, validation.IsQualifiedName(key)...)
	case ok && field == "metadata.annotations":
		p.Value(path+".fieldPath", r.FieldPath, validation.IsQualifiedName(strings.ToLower(key))...)
	case ok || !slices.Contains(allowed, r.FieldPath):
		known := append(slices.Clone(allowed), "metadata.labels['KEY']", "metadata.annotations['KEY']")
		p.Value(path+".fieldPath", r.FieldPath, "is not known (known: "+strings.Join(known, ", ")+")")
	}
}

// divisors are those of CPU, and those of memory and storage.
var (
	cpuDivisors    = []string{"1m", "1"}
	amountDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

// checkResourceRef checks a reference to a request or a limit (EV6). A file must name its
// container.
func checkResourceRef(p *fields.Problems, pod *corev1.Pod, path string, r *corev1.ResourceFieldSelector, file bool) {
	if file && p.Required(path+".containerName", r.ContainerName) || !file && r.ContainerName != "" {
		if !slices.ContainsFunc(Containers(pod), func(c Container) bool { return c.Name == r.ContainerName }) {
			p.Value(path+".containerName", r.ContainerName, "is no container of this pod")
		}
	}
	kind, name, _ := strings.Cut(r.Resource, ".")
	known := name == "cpu" || name == "memory" || name == "ephemeral-storage" || IsHugePages(corev1.ResourceName(name))
	if kind != "limits" && kind != "requests" || !known {
		p.Value(path+".resource", r.Resource,
			"is not known (known: limits and requests of cpu, memory, ephemeral-storage, hugepages-SIZE)")
		return
	}
	allowed := amountDivisors
	if name == "cpu" {
		allowed = cpuDivisors
	}
	if r.Divisor.IsZero() { // not given: 1
		return
	}
	if !slices.ContainsFunc(allowed, func(d string) bool { return r.Divisor.Cmp(resource.MustParse(d)) == 0 }) {
		p.Value(path+".divisor", r.Divisor.String(), "must be one of "+strings.Join(allowed, ", "))
	}
}
