package table

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// Options say which columns there are.
type Options struct {
	// Namespace is whether namespaces are a column, Labels whether labels are; Wide asks for all
	// others.
	Namespace, Labels, Wide bool
	// LabelColumns are labels whose values are columns, before all labels.
	LabelColumns []string
	// Kind puts the kind before each name.
	Kind bool
	// LongTimes shows how often an event was seen, and since when.
	LongTimes bool
}

// Header are the titles of a kind's columns.
func Header(r api.Resource, o Options) []string {
	var h []string
	switch r.Kind {
	case manifest.KindPod:
		h = []string{"NAME", "READY", "STATUS", "RESTARTS", "AGE"}
		if o.Wide {
			h = append(h, "IP", "NODE", "CLASS", "FILE")
		}
	case manifest.KindConfigMap:
		h = []string{"NAME", "DATA", "AGE"}
	case manifest.KindSecret:
		h = []string{"NAME", "TYPE", "DATA", "AGE"}
	case manifest.KindClaim:
		h = []string{"NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS", "VOLUMEATTRIBUTESCLASS", "AGE"}
		if o.Wide {
			h = append(h, "VOLUMEMODE")
		}
	case manifest.KindRuntimeClass:
		h = []string{"NAME", "HANDLER", "AGE"}
	case api.KindNode:
		h = nodeHeader(o)
	case api.KindEvent:
		h = []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}
	case api.KindManifest:
		h = []string{"FILE", "STATUS", "OBJECTS", "SINCE", "MESSAGE"}
	}
	var titles []string
	for _, l := range o.LabelColumns {
		titles = append(titles, strings.ToUpper(l[strings.LastIndex(l, "/")+1:]))
	}
	return around(r, h, "NAMESPACE", "LABELS", titles, o)
}

// around puts the columns that kinds have in common around a kind's own.
func around(r api.Resource, row []string, namespace, labels string, columns []string, o Options) []string {
	if o.Namespace && r.Namespaced {
		row = append([]string{namespace}, row...)
	}
	if r.Kind != api.KindManifest {
		row = append(row, columns...)
	}
	if o.Labels && r.Kind != api.KindManifest {
		row = append(row, labels)
	}
	return row
}

// Row is an object, in JSON, as a row of its kind.
func Row(r api.Resource, raw json.RawMessage, now time.Time, o Options) ([]string, error) {
	var row []string
	var meta metav1.ObjectMeta
	var err error
	switch r.Kind {
	case manifest.KindPod:
		row, meta, err = decoded(raw, func(p *corev1.Pod) ([]string, metav1.ObjectMeta) { return podRow(p, now, o), p.ObjectMeta })
	case manifest.KindConfigMap:
		row, meta, err = decoded(raw, func(c *corev1.ConfigMap) ([]string, metav1.ObjectMeta) {
			return []string{c.Name, strconv.Itoa(len(c.Data) + len(c.BinaryData)), age(c.CreationTimestamp.Time, now)}, c.ObjectMeta
		})
	case manifest.KindSecret:
		row, meta, err = decoded(raw, func(s *corev1.Secret) ([]string, metav1.ObjectMeta) {
			return []string{s.Name, string(s.Type), strconv.Itoa(len(s.Data)), age(s.CreationTimestamp.Time, now)}, s.ObjectMeta
		})
	case manifest.KindClaim:
		row, meta, err = decoded(raw, func(c *corev1.PersistentVolumeClaim) ([]string, metav1.ObjectMeta) {
			return claimRow(c, now, o), c.ObjectMeta
		})
	case manifest.KindRuntimeClass:
		row, meta, err = decoded(raw, func(c *nodev1.RuntimeClass) ([]string, metav1.ObjectMeta) {
			return []string{c.Name, c.Handler, age(c.CreationTimestamp.Time, now)}, c.ObjectMeta
		})
	case api.KindNode:
		row, meta, err = decoded(raw, func(n *corev1.Node) ([]string, metav1.ObjectMeta) { return nodeRow(n, now, o), n.ObjectMeta })
	case api.KindEvent:
		row, meta, err = decoded(raw, func(e *corev1.Event) ([]string, metav1.ObjectMeta) { return eventRow(e, now, o), e.ObjectMeta })
	case api.KindManifest:
		row, meta, err = decoded(raw, func(m *api.Manifest) ([]string, metav1.ObjectMeta) { return manifestRow(m, now), metav1.ObjectMeta{} })
	default:
		return nil, fmt.Errorf("print %s: no columns are known", r.Kind)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.Singular, err)
	}
	if o.Kind && r.Kind != api.KindEvent {
		row[0] = r.QualifiedName() + "/" + row[0]
	}
	var columns []string
	for _, l := range o.LabelColumns {
		columns = append(columns, meta.Labels[l])
	}
	return around(r, row, meta.Namespace, labels.FormatLabels(meta.Labels), columns, o), nil
}

func decoded[T any](raw json.RawMessage, row func(*T) ([]string, metav1.ObjectMeta)) ([]string, metav1.ObjectMeta, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, metav1.ObjectMeta{}, err
	}
	cells, meta := row(&v)
	return cells, meta, nil
}

func podRow(p *corev1.Pod, now time.Time, o Options) []string {
	ready, status, restarts := cycle.Columns(p, now)
	row := []string{p.Name, ready, status, restarts, age(p.CreationTimestamp.Time, now)}
	if !o.Wide {
		return row
	}
	class := ""
	if p.Spec.RuntimeClassName != nil {
		class = *p.Spec.RuntimeClassName
	}
	return append(row, OrNone(p.Status.PodIP), OrNone(p.Spec.NodeName), OrNone(class), OrNone(p.Annotations[api.AnnotationFile]))
}

func claimRow(c *corev1.PersistentVolumeClaim, now time.Time, o Options) []string {
	status := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		status = "Terminating"
	}
	capacity, modes := "", ""
	if q, ok := c.Status.Capacity[corev1.ResourceStorage]; ok && c.Spec.VolumeName != "" {
		capacity, modes = q.String(), AccessModes(c.Status.AccessModes)
	}
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	attributes, mode := "<unset>", "<unset>"
	if a := c.Spec.VolumeAttributesClassName; a != nil {
		attributes = *a
	}
	if c.Spec.VolumeMode != nil {
		mode = string(*c.Spec.VolumeMode)
	}
	row := []string{c.Name, status, c.Spec.VolumeName, capacity, modes, class, attributes, age(c.CreationTimestamp.Time, now)}
	if o.Wide {
		row = append(row, mode)
	}
	return row
}

// AccessModes are a claim's access modes in kubectl's short words.
func AccessModes(modes []corev1.PersistentVolumeAccessMode) string {
	words := map[corev1.PersistentVolumeAccessMode]string{
		corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX", corev1.ReadWriteOncePod: "RWOP",
	}
	var short []string
	for _, m := range modes {
		short = append(short, words[m])
	}
	return strings.Join(short, ",")
}

func manifestRow(m *api.Manifest, now time.Time) []string {
	message := m.Message
	if n := len(m.Notes); n > 0 && message == "" {
		message = "ignored: " + m.Notes[0]
		if n > 1 {
			message += fmt.Sprintf(" (and %d more)", n-1)
		}
	}
	return []string{filepath.Base(m.File), m.Status, strconv.Itoa(m.Objects), age(m.Since, now), message}
}

func eventRow(e *corev1.Event, now time.Time, o Options) []string {
	last, kind := age(LastSeen(e), now), strings.ToLower(e.InvolvedObject.Kind)
	if o.LongTimes {
		last, kind = Interval(e, now), e.InvolvedObject.Kind
	}
	return []string{last, e.Type, e.Reason, kind + "/" + e.InvolvedObject.Name, strings.TrimSpace(e.Message)}
}

// LastSeen is when an event was last seen.
func LastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.FirstTimestamp.IsZero():
		return e.FirstTimestamp.Time
	}
	return e.EventTime.Time
}

// Interval is how long ago an event was last seen, and how often since when: "4s (x12 over 4m)".
func Interval(e *corev1.Event, now time.Time) string {
	first, count := e.FirstTimestamp.Time, e.Count
	if !e.EventTime.IsZero() {
		first = e.EventTime.Time
	}
	if e.Series != nil {
		count = e.Series.Count
	}
	if count > 1 {
		return fmt.Sprintf("%s (x%d over %s)", age(LastSeen(e), now), count, age(first, now))
	}
	return age(first, now)
}

// age is the time since t as kubectl writes it: "5s", "3m12s", "4h", "12d".
func age(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return cycle.Age(t, now)
}
