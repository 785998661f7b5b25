package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

const (
	// maxSelector bounds a selector, in bytes.
	maxSelector = 4 << 10
	// maxName bounds a name and a namespace, in bytes; names of files may be longer.
	maxName = 253
	maxFile = 4 << 10
)

// Query says which objects of a kind are wanted. Its zero value is all of them.
type Query struct {
	Namespace, Name              string
	LabelSelector, FieldSelector string
	// Values asks for the values of Secrets, which are left empty without.
	Values bool
}

func (q Query) encode() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"namespace": q.Namespace, "name": q.Name, "labelSelector": q.LabelSelector, "fieldSelector": q.FieldSelector,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Values {
		v.Set("values", "true")
	}
	return v
}

func decodeQuery(v url.Values) Query {
	return Query{
		Namespace: v.Get("namespace"), Name: v.Get("name"), LabelSelector: v.Get("labelSelector"), FieldSelector: v.Get("fieldSelector"),
		Values: v.Get("values") == "true",
	}
}

// filter is a query whose selectors are parsed.
type filter struct {
	Query
	labels labels.Selector
	fields fields.Selector
}

func (q Query) filter(r Resource) (*filter, error) {
	f := &filter{Query: q, labels: labels.Everything(), fields: fields.Everything()}
	if len(q.LabelSelector) > maxSelector || len(q.FieldSelector) > maxSelector {
		return nil, fmt.Errorf("list %s: the selector is longer than %d bytes: %w", r.Plural, maxSelector, errdefs.ErrInvalidArgument)
	}
	if len(q.Name) > maxFile || len(q.Namespace) > maxName {
		return nil, fmt.Errorf("list %s: the name is longer than %d bytes: %w", r.Plural, maxName, errdefs.ErrInvalidArgument)
	}
	var err error
	if f.labels, err = labels.Parse(q.LabelSelector); err != nil {
		return nil, fmt.Errorf("list %s: label selector %q: %w: %w", r.Plural, q.LabelSelector, err, errdefs.ErrInvalidArgument)
	}
	if f.fields, err = fields.ParseSelector(q.FieldSelector); err != nil {
		return nil, fmt.Errorf("list %s: field selector %q: %w: %w", r.Plural, q.FieldSelector, err, errdefs.ErrInvalidArgument)
	}
	known := selectable(r.Kind)
	for _, req := range f.fields.Requirements() {
		if !slices.Contains(known, req.Field) {
			return nil, fmt.Errorf("list %s: field label not supported: %s (supported: %v): %w", r.Plural, req.Field, known, errdefs.ErrInvalidArgument)
		}
	}
	return f, nil
}

// selectable are the fields that a selector may name.
func selectable(kind string) []string {
	known := []string{"metadata.name", "metadata.namespace"}
	switch kind {
	case manifest.KindPod:
		return append(known, "status.phase", "spec.nodeName")
	case KindEvent:
		return append(known, "involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "involvedObject.uid", "reason", "type")
	case KindManifest:
		return []string{"metadata.name"}
	}
	return known
}

// item is an object that may be listed.
type item struct {
	namespace, name string
	labels          labels.Set
	fields          fields.Set
	value           any
}

func (f *filter) matches(i item) bool {
	return (f.Namespace == "" || i.namespace == f.Namespace || i.namespace == "") &&
		(f.Name == "" || i.name == f.Name || filepath.Base(i.name) == f.Name) &&
		f.labels.Matches(i.labels) && f.fields.Matches(i.fields)
}

// items are all objects of a kind.
func items(a Agent, r Resource) []item {
	var all []item
	switch r.Kind {
	case manifest.KindPod:
		for _, p := range a.Pods() {
			i := itemOf(p)
			i.fields["status.phase"], i.fields["spec.nodeName"] = string(p.Status.Phase), p.Spec.NodeName
			all = append(all, i)
		}
	case KindEvent:
		for _, e := range a.Events() {
			i := itemOf(e)
			i.fields["type"], i.fields["reason"] = e.Type, e.Reason
			i.fields["involvedObject.kind"], i.fields["involvedObject.name"] = e.InvolvedObject.Kind, e.InvolvedObject.Name
			i.fields["involvedObject.namespace"], i.fields["involvedObject.uid"] = e.InvolvedObject.Namespace, string(e.InvolvedObject.UID)
			all = append(all, i)
		}
	case KindManifest:
		for _, m := range a.Manifests() {
			all = append(all, item{name: m.File, fields: fields.Set{"metadata.name": filepath.Base(m.File)}, value: &m})
		}
	default:
		for _, o := range a.Objects(r.Kind) {
			all = append(all, itemOf(o))
		}
	}
	return all
}

func itemOf(o metav1.Object) item {
	return item{
		namespace: o.GetNamespace(), name: o.GetName(), labels: o.GetLabels(), value: o,
		fields: fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()},
	}
}

// encodeItem is an object in JSON with its kind. Values of Secrets are left out unless they are
// asked for.
func encodeItem(i item, r Resource, values bool) (json.RawMessage, error) {
	switch v := i.value.(type) {
	case *corev1.Pod:
		return json.Marshal(typed(v, r))
	case *corev1.ConfigMap:
		return json.Marshal(typed(v, r))
	case *corev1.Secret:
		c := typed(v, r)
		if !values {
			c.Data, c.StringData, c.Annotations = withoutValues(v), nil, nil
		}
		return json.Marshal(c)
	case *corev1.PersistentVolumeClaim:
		return json.Marshal(typed(v, r))
	case *nodev1.RuntimeClass:
		return json.Marshal(typed(v, r))
	case *corev1.Event:
		return json.Marshal(typed(v, r))
	case *corev1.Node:
		return json.Marshal(typed(v, r))
	case *Manifest:
		return json.Marshal(typed(v, r))
	}
	return nil, fmt.Errorf("encode %s %q: the agent gave a %T", r.Singular, i.name, i.value)
}

// typed is an object with its kind, which objects in memory do not have.
func typed[T any, P interface {
	*T
	GetObjectKind() schema.ObjectKind
}](object P, r Resource) P {
	shallow := *object
	c := P(&shallow)
	c.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(r.APIVersion, r.Kind))
	return c
}

func withoutValues(s *corev1.Secret) map[string][]byte {
	keys := map[string][]byte{}
	for k := range s.Data {
		keys[k] = []byte{}
	}
	for k := range s.StringData {
		keys[k] = []byte{}
	}
	return keys
}
