package api

import (
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

// Kinds that are shown besides those of manifests.
const (
	KindEvent    = "Event"
	KindManifest = "Manifest"
	KindNode     = "Node"
)

// Resource is a kind of object with the names that commands and paths have for it.
type Resource struct {
	Kind, APIVersion, Plural, Singular string
	Short                              []string
	Namespaced                         bool
}

// Resources are all kinds that can be listed.
func Resources() []Resource {
	return []Resource{
		{Kind: manifest.KindPod, APIVersion: "v1", Plural: "pods", Singular: "pod", Short: []string{"po"}, Namespaced: true},
		{Kind: manifest.KindConfigMap, APIVersion: "v1", Plural: "configmaps", Singular: "configmap", Short: []string{"cm"}, Namespaced: true},
		{Kind: manifest.KindSecret, APIVersion: "v1", Plural: "secrets", Singular: "secret", Namespaced: true},
		{Kind: manifest.KindClaim, APIVersion: "v1", Plural: "persistentvolumeclaims", Singular: "persistentvolumeclaim", Short: []string{"pvc"}, Namespaced: true},
		{Kind: manifest.KindRuntimeClass, APIVersion: "node.k8s.io/v1", Plural: "runtimeclasses", Singular: "runtimeclass"},
		{Kind: KindNode, APIVersion: "v1", Plural: "nodes", Singular: "node", Short: []string{"no"}},
		{Kind: KindEvent, APIVersion: "v1", Plural: "events", Singular: "event", Short: []string{"ev"}, Namespaced: true},
		{Kind: KindManifest, APIVersion: "v1", Plural: "manifests", Singular: "manifest"},
	}
}

// FindResource finds a kind by any of its names, in upper or lower case.
func FindResource(name string) (Resource, bool) {
	name = strings.ToLower(name)
	for _, r := range Resources() {
		if name == r.Plural || name == r.Singular || slices.Contains(r.Short, name) {
			return r, true
		}
	}
	return Resource{}, false
}

// QualifiedName is the kind's name as kubectl prints it before an object's: "pod",
// "runtimeclass.node.k8s.io".
func (r Resource) QualifiedName() string {
	if group, _, ok := strings.Cut(r.APIVersion, "/"); ok {
		return r.Singular + "." + group
	}
	return r.Singular
}
