package manifest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
	"github.com/sunaba-project/sunaba/pods/manifest/validation"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// verdict says how a kind is treated.
type verdict int

const (
	takenKind verdict = iota
	ignoredKind
	refusedKind
)

// clusterKinds are kinds without a namespace, for texts.
var clusterKinds = []string{
	KindRuntimeClass, "Namespace", "PriorityClass", "PersistentVolume", "StorageClass", "ClusterRole", "ClusterRoleBinding",
	"CustomResourceDefinition", "IngressClass", "Node", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
}

// takenKinds are what Parse returns, with their version.
var takenKinds = map[string]string{
	KindPod: "v1", KindConfigMap: "v1", KindSecret: "v1", KindClaim: "v1", KindRuntimeClass: "node.k8s.io/v1",
}

// voidKinds have no effect on one node.
var voidKinds = map[string]string{"Namespace": "v1", "ServiceAccount": "v1", "PodDisruptionBudget": "policy/v1"}

// instead says what a manifest may have in the place of a kind that is not run.
var instead = map[string]string{
	"batch/v1 Job":                       "write a Pod with restartPolicy OnFailure or Never",
	"batch/v1 CronJob":                   "write a Pod with restartPolicy Never, and apply it from a timer of the node",
	"apps/v1 DaemonSet":                  "write its template as a Pod: there is one node",
	"apps/v1 Deployment":                 "write its template as a Pod, once for each replica, with names of their own",
	"apps/v1 ReplicaSet":                 "write its template as a Pod, once for each replica, with names of their own",
	"apps/v1 StatefulSet":                "write its template as a Pod with a PersistentVolumeClaim",
	"v1 ReplicationController":           "write its template as a Pod, once for each replica, with names of their own",
	"v1 PersistentVolume":                "write a PersistentVolumeClaim, which is a folder of the node, or use hostPath",
	"scheduling.k8s.io/v1 PriorityClass": "give the Pod spec.priority, or the class system-node-critical or system-cluster-critical",
	"networking.k8s.io/v1 NetworkPolicy": "restrict the traffic by the node's firewall",
	"policy/v1beta1 PodSecurityPolicy":   "write the restrictions into the Pod's securityContext",
	"networking.k8s.io/v1 Ingress":       "use a Pod that listens on a hostPort",
	"v1 Service":                         "use hostPort and hostAliases",
	"v1 PodTemplate":                     "write it as a Pod",
	"resource.k8s.io/v1 ResourceClaim":   "use CDI devices, by an annotation cdi.k8s.io/… of the Pod",
	"storage.k8s.io/v1 StorageClass":     "leave storageClassName of claims empty: they are folders of the node",
}

// replaced are deprecated versions of kinds, with those that replaced them. "*" is any other kind.
var replaced = map[string]map[string]string{
	"extensions/v1beta1": {
		"Deployment": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1", "Ingress": "networking.k8s.io/v1",
		"NetworkPolicy": "networking.k8s.io/v1",
	},
	"apps/v1beta1":                      {"*": "apps/v1"},
	"apps/v1beta2":                      {"*": "apps/v1"},
	"batch/v1beta1":                     {"*": "batch/v1"},
	"batch/v2alpha1":                    {"*": "batch/v1"},
	"node.k8s.io/v1alpha1":              {KindRuntimeClass: "node.k8s.io/v1"},
	"node.k8s.io/v1beta1":               {KindRuntimeClass: "node.k8s.io/v1"},
	"policy/v1beta1":                    {"PodDisruptionBudget": "policy/v1"},
	"scheduling.k8s.io/v1alpha1":        {"PriorityClass": "scheduling.k8s.io/v1"},
	"scheduling.k8s.io/v1beta1":         {"PriorityClass": "scheduling.k8s.io/v1"},
	"networking.k8s.io/v1beta1":         {"*": "networking.k8s.io/v1"},
	"storage.k8s.io/v1beta1":            {"*": "storage.k8s.io/v1"},
	"autoscaling/v2beta1":               {"*": "autoscaling/v2"},
	"autoscaling/v2beta2":               {"*": "autoscaling/v2"},
	"rbac.authorization.k8s.io/v1beta1": {"*": "rbac.authorization.k8s.io/v1"},
	"apiextensions.k8s.io/v1beta1":      {"*": "apiextensions.k8s.io/v1"},
}

// judge says how a kind is treated, and the text of a note or an error.
func judge(m metav1.TypeMeta, ignore []string) (verdict, string) {
	switch {
	case m.Kind == "":
		return refusedKind, "kind: is required"
	case slices.Contains(ignore, m.Kind):
		return ignoredKind, "is ignored: its kind is on [pods] ignore_kinds"
	case m.APIVersion == "":
		return refusedKind, "apiVersion: is required"
	case takenKinds[m.Kind] == m.APIVersion:
		return takenKind, ""
	case voidKinds[m.Kind] == m.APIVersion:
		return ignoredKind, "is ignored: this kind has no effect on one node"
	}
	if text, ok := replacement(m); ok {
		return refusedKind, text
	}
	if version := takenKinds[m.Kind]; version != "" && group(version) == group(m.APIVersion) {
		return refusedKind, fmt.Sprintf("apiVersion: %s: is not known for this kind; write %s", fields.Quote(m.APIVersion), version)
	}
	const goOn = "put it on [pods] ignore_kinds to ignore it"
	if advice := instead[m.APIVersion+" "+m.Kind]; advice != "" {
		return refusedKind, "this kind has no effect here: " + advice + "; or " + goOn
	}
	if strings.HasSuffix(m.Kind, "List") {
		return refusedKind, "this kind has no effect here; write a List of v1 with the same items"
	}
	return refusedKind, "this kind has no effect here; " + goOn
}

// replacement is the text for a deprecated version.
func replacement(m metav1.TypeMeta) (string, bool) {
	kinds, ok := replaced[m.APIVersion]
	if !ok {
		return "", false
	}
	version, ok := kinds[m.Kind]
	if !ok {
		version, ok = kinds["*"]
	}
	if !ok {
		return "", false
	}
	return fmt.Sprintf("apiVersion: %s: is deprecated; it was replaced by %s", fields.Quote(m.APIVersion), version), true
}

// group is the group of an apiVersion, "" for the core's.
func group(apiVersion string) string {
	g, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return g
}

// found is what is known of an object besides its value.
type found struct{ notes, defaulted []string }

// read decodes, defaults and checks one object.
func (p *parser) read(h head, js []byte) (metav1.Object, found, error) {
	switch h.Kind {
	case KindPod:
		return p.pod(js)
	case KindConfigMap:
		return admit(p, js, &corev1.ConfigMap{}, defaultConfigMap, validation.ConfigMap)
	case KindSecret:
		return admit(p, js, &corev1.Secret{}, defaultSecret, validation.Secret)
	case KindClaim:
		return admit(p, js, &corev1.PersistentVolumeClaim{}, defaultClaim, validation.Claim)
	}
	return p.class(js)
}

// class decodes and checks a RuntimeClass, by the rules of the node's own files.
func (p *parser) class(js []byte) (metav1.Object, found, error) {
	var rc nodev1.RuntimeClass
	var bad fields.Problems
	if err := strict(js, &rc, &bad); err != nil {
		return nil, found{}, err
	}
	out := found{notes: p.laws.Judge(&bad, "", &rc)}
	validation.Meta(&bad, &rc)
	if err := runtimeclass.Check(&rc); err != nil {
		bad.Add("", "%s", err.Error())
	}
	return &rc, out, bad.Err()
}

// admit decodes, defaults and checks an object that is not a Pod.
func admit[T metav1.Object](p *parser, js []byte, into T, setDefaults func(T), check func(*fields.Problems, T)) (metav1.Object, found, error) {
	var out found
	var bad fields.Problems
	if err := strict(js, into, &bad); err != nil {
		return nil, found{}, err
	}
	out.notes = p.laws.Judge(&bad, "", into)
	if into.GetNamespace() == "" {
		into.SetNamespace(p.namespace())
	}
	setDefaults(into)
	validation.Object(&bad, into)
	check(&bad, into)
	return into, out, bad.Err()
}

// pod decodes, defaults and checks a Pod.
func (p *parser) pod(js []byte) (metav1.Object, found, error) {
	pod := &corev1.Pod{}
	var out found
	var bad fields.Problems
	if err := strict(js, pod, &bad); err != nil {
		return nil, found{}, err
	}
	out.notes = p.laws.Judge(&bad, "", pod)
	if pod.Namespace == "" {
		pod.Namespace = p.namespace()
	}
	out.defaulted = defaultPod(pod)
	out.notes = append(out.notes, validation.Pod(&bad, pod)...)
	return pod, out, bad.Err()
}
