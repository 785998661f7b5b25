// Package manifest turns the bytes of manifest files into Kubernetes objects: it decodes strictly,
// sets the API server's defaults and refuses what Kubernetes would refuse, or what has no effect on
// one node without an API server. It reads no files and knows no node.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/manifest/validation"
)

// The kinds of objects that a manifest may hold.
const (
	KindPod          = "Pod"
	KindConfigMap    = "ConfigMap"
	KindSecret       = "Secret"
	KindRuntimeClass = "RuntimeClass"
	KindClaim        = "PersistentVolumeClaim"
)

// Key names an object. Objects without a namespace, RuntimeClasses, have an empty one.
type Key struct{ Kind, Namespace, Name string }

// String is the key as messages have it: "pod default/web", "runtimeclass wasm".
func (k Key) String() string {
	if k.Namespace == "" {
		return strings.ToLower(k.Kind) + " " + k.Name
	}
	return strings.ToLower(k.Kind) + " " + k.Namespace + "/" + k.Name
}

// Object is one object of a manifest, with its defaults set and checked. It is never changed.
type Object struct {
	Key
	// File is the file that it was read from, as it was given to Parse.
	File string
	// Document counts the documents of the file from 1; Line is the first line of its document.
	Document, Line int
	// Value is a *corev1.Pod, *corev1.ConfigMap, *corev1.Secret, *nodev1.RuntimeClass or
	// *corev1.PersistentVolumeClaim.
	Value metav1.Object
	// Defaulted are the paths of a Pod's fields that the manifest does not have and whose default
	// matters to somebody: "spec.restartPolicy", "spec.dnsPolicy" and each "…imagePullPolicy" and
	// "…image.pullPolicy".
	Defaulted []string
}

// Options are what the configuration says about manifests.
type Options struct {
	// IgnoreKinds are kinds that are skipped with a note where a manifest brings them.
	IgnoreKinds []string
	// Namespace is that of objects that name none, "" for "default".
	Namespace string
}

// Hash is the SHA-256, in hexadecimal, of the object with its defaults as canonical JSON: two files
// that say the same in another form or order give the same hash.
func (o Object) Hash() string {
	data, err := json.Marshal(o.Value)
	if err != nil { // of values that were decoded from JSON: a quantity or a time of another kind
		panic("marshal " + o.Key.String() + ": " + err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Pod is the object's value as a Pod, nil for another kind.
func (o Object) Pod() *corev1.Pod {
	pod, _ := o.Value.(*corev1.Pod)
	return pod
}

// KeepPullPolicies returns the Pod with the pull policies of the version before it where the
// manifest gives none: the default is set once, so an edit of the image alone does not change it
// (IM1). Containers and volumes are found by name. Other kinds are returned as they are.
func (o Object) KeepPullPolicies(before *corev1.Pod) Object {
	if o.Pod() == nil || before == nil {
		return o
	}
	pod := o.Pod().DeepCopy()
	policies := map[string]corev1.PullPolicy{}
	for _, c := range Containers(before) {
		policies[c.Name] = c.ImagePullPolicy
	}
	for _, c := range Containers(pod) {
		if have := policies[c.Name]; have != "" && slices.Contains(o.Defaulted, c.Path+".imagePullPolicy") {
			c.ImagePullPolicy = have
		}
	}
	images := map[string]corev1.PullPolicy{}
	for _, v := range before.Spec.Volumes {
		if v.Image != nil {
			images[v.Name] = v.Image.PullPolicy
		}
	}
	for i, v := range pod.Spec.Volumes {
		if have := images[v.Name]; v.Image != nil && have != "" && slices.Contains(o.Defaulted, validation.VolumePath(i)+".image.pullPolicy") {
			v.Image.PullPolicy = have
		}
	}
	o.Value = pod
	return o
}

// Container is one container of a Pod with the path of its field.
type Container = validation.Container

// Containers are a Pod's init containers, sidecars among them, and then its app containers, in
// order. They are the Pod's own, not copies.
func Containers(pod *corev1.Pod) []Container { return validation.Containers(pod) }
