package describe

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

func volumes(w *writer, all []corev1.Volume) {
	if len(all) == 0 {
		w.line(0, "Volumes:\t<none>")
		return
	}
	w.line(0, "Volumes:")
	for i := range all {
		w.line(1, "%s:", all[i].Name)
		volume(w, &all[i])
	}
}

// volume writes a volume of one of the kinds that Sunaba has.
func volume(w *writer, v *corev1.Volume) {
	switch {
	case v.HostPath != nil:
		kind := table.None
		if v.HostPath.Type != nil {
			kind = string(*v.HostPath.Type)
		}
		source(w, "HostPath (bare host directory volume)", "Path", v.HostPath.Path, "HostPathType", kind)
	case v.EmptyDir != nil:
		limit := "<unset>"
		if q := v.EmptyDir.SizeLimit; q != nil && q.Sign() > 0 {
			limit = q.String()
		}
		source(w, "EmptyDir (a temporary directory that shares a pod's lifetime)", "Medium", string(v.EmptyDir.Medium), "SizeLimit", limit)
	case v.Secret != nil:
		source(w, "Secret (a volume populated by a Secret)", "SecretName", v.Secret.SecretName, "Optional", yes(v.Secret.Optional))
	case v.ConfigMap != nil:
		source(w, "ConfigMap (a volume populated by a ConfigMap)", "Name", v.ConfigMap.Name, "Optional", yes(v.ConfigMap.Optional))
	case v.PersistentVolumeClaim != nil:
		source(w, "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
			"ClaimName", v.PersistentVolumeClaim.ClaimName, "ReadOnly", fmt.Sprint(v.PersistentVolumeClaim.ReadOnly))
	case v.Image != nil:
		source(w, "Image (a container image or OCI artifact)", "Reference", v.Image.Reference, "PullPolicy", string(v.Image.PullPolicy))
	case v.DownwardAPI != nil:
		source(w, "DownwardAPI (a volume populated by information about the pod)")
		w.line(2, "Items:")
		for _, item := range v.DownwardAPI.Items {
			switch {
			case item.FieldRef != nil:
				w.line(3, "%s -> %s", item.FieldRef.FieldPath, item.Path)
			case item.ResourceFieldRef != nil:
				w.line(3, "%s -> %s", item.ResourceFieldRef.Resource, item.Path)
			}
		}
	case v.Projected != nil:
		source(w, "Projected (a volume that contains injected data from multiple sources)")
		for _, s := range v.Projected.Sources {
			switch {
			case s.Secret != nil:
				w.line(2, "SecretName:\t%s", s.Secret.Name)
				w.line(2, "Optional:\t%s", yes(s.Secret.Optional))
			case s.DownwardAPI != nil:
				w.line(2, "DownwardAPI:\ttrue")
			case s.ConfigMap != nil:
				w.line(2, "ConfigMapName:\t%s", s.ConfigMap.Name)
				w.line(2, "Optional:\t%s", yes(s.ConfigMap.Optional))
			}
		}
	default:
		w.line(1, "<unknown>")
	}
}

// source writes a volume's type and its details, pairs of a name and a value.
func source(w *writer, kind string, details ...string) {
	w.line(2, "Type:\t%s", kind)
	for pair := range slices.Chunk(details, 2) {
		w.line(2, "%s:\t%s", pair[0], pair[1])
	}
}

func yes(b *bool) string { return fmt.Sprint(b != nil && *b) }

// top writes what all objects have.
func top(w *writer, m metav1.ObjectMeta) {
	w.line(0, "Name:\t%s", m.Name)
	if m.Namespace != "" {
		w.line(0, "Namespace:\t%s", m.Namespace)
	}
	w.pairs("Labels", m.Labels)
	w.annotations(m.Annotations)
}

// ConfigMap writes a ConfigMap with its texts.
func ConfigMap(out io.Writer, c *corev1.ConfigMap) error {
	w := &writer{}
	top(w, c.ObjectMeta)
	w.line(0, "\nData\n====")
	for _, k := range slices.Sorted(maps.Keys(c.Data)) {
		w.line(0, "%s:\n----", k)
		w.listed(0, []string{strings.ReplaceAll(c.Data[k], "\t", "    ")})
		w.line(0, "")
	}
	w.line(0, "\nBinaryData\n====")
	for _, k := range slices.Sorted(maps.Keys(c.BinaryData)) {
		w.line(0, "%s: %d bytes", k, len(c.BinaryData[k]))
	}
	w.line(0, "")
	return w.flush(out)
}

// Secret writes a Secret with the sizes of its values.
func Secret(out io.Writer, s *corev1.Secret) error {
	w := &writer{}
	top(w, s.ObjectMeta)
	w.line(0, "\nType:\t%s", string(s.Type))
	w.line(0, "\nData\n====")
	for _, k := range slices.Sorted(maps.Keys(s.Data)) {
		w.line(0, "%s:\t%d bytes", k, len(s.Data[k]))
	}
	return w.flush(out)
}

// Claim writes a PersistentVolumeClaim.
func Claim(out io.Writer, c *corev1.PersistentVolumeClaim) error {
	w := &writer{}
	class, capacity, mode := "", "", corev1.PersistentVolumeFilesystem
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	if q, ok := c.Status.Capacity[corev1.ResourceStorage]; ok {
		capacity = q.String() + " (not enforced)"
	}
	if c.Spec.VolumeMode != nil {
		mode = *c.Spec.VolumeMode
	}
	w.line(0, "Name:\t%s", c.Name)
	w.line(0, "Namespace:\t%s", c.Namespace)
	w.line(0, "StorageClass:\t%s", class)
	w.line(0, "Status:\t%s", string(c.Status.Phase))
	w.line(0, "Volume:\t%s", c.Spec.VolumeName)
	w.pairs("Labels", c.Labels)
	w.annotations(c.Annotations)
	w.line(0, "Capacity:\t%s", capacity)
	w.line(0, "Access Modes:\t%s", table.AccessModes(c.Spec.AccessModes))
	w.line(0, "VolumeMode:\t%s", string(mode))
	return w.flush(out)
}

// RuntimeClass writes a RuntimeClass.
func RuntimeClass(out io.Writer, c *nodev1.RuntimeClass) error {
	w := &writer{}
	top(w, c.ObjectMeta)
	w.line(0, "Handler:\t%s", c.Handler)
	overhead := ""
	if c.Overhead != nil {
		overhead = runtimeclass.Quantities(c.Overhead.PodFixed)
	}
	w.line(0, "Overhead:\t%s", table.OrNone(overhead))
	if c.Scheduling != nil {
		w.pairs("Node-Selectors", c.Scheduling.NodeSelector)
		tolerations(w, c.Scheduling.Tolerations)
	}
	return w.flush(out)
}

// Event writes an event.
func Event(out io.Writer, e *corev1.Event, now time.Time) error {
	w := &writer{}
	top(w, e.ObjectMeta)
	w.line(0, "Object:\t%s/%s", strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name)
	w.line(0, "Type:\t%s", e.Type)
	w.line(0, "Reason:\t%s", e.Reason)
	w.line(0, "Last Seen:\t%s", table.Interval(e, now))
	w.line(0, "Message:\t%s", e.Message)
	return w.flush(out)
}

// ManifestEvents are those about a manifest file.
func ManifestEvents(all []corev1.Event, path string) []corev1.Event {
	var list []corev1.Event
	for _, e := range all {
		if e.InvolvedObject.Kind == api.KindManifest && e.InvolvedObject.FieldPath == path {
			e.InvolvedObject.FieldPath = "" // it is said above
			list = append(list, e)
		}
	}
	return list
}

// Manifest writes a manifest file, with the whole of what is wrong with it, and its events.
func Manifest(out io.Writer, m *api.Manifest, about []corev1.Event, now time.Time) error {
	w := &writer{}
	w.line(0, "File:\t%s", m.File)
	w.line(0, "Status:\t%s", m.Status)
	w.line(0, "Objects:\t%d", m.Objects)
	if !m.Since.IsZero() {
		w.line(0, "Since:\t%s (%s)", m.Since.Format(time.RFC1123Z), cycle.Age(m.Since, now))
	}
	if m.Message == "" {
		w.line(0, "Message:\t<none>")
	} else {
		w.line(0, "Message:")
		w.listed(1, []string{m.Message})
	}
	if len(m.Notes) > 0 {
		w.line(0, "Ignored:")
		w.listed(1, m.Notes)
	}
	if err := w.flush(out); err != nil || len(about) == 0 {
		return err
	}
	return events(out, about, now)
}
