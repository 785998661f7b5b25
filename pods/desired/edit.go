package desired

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// EditKind is what an edit does to a pod as a whole.
type EditKind int

// The kinds of edits, from the least to the greatest.
const (
	// Unchanged: both are the same pod.
	Unchanged EditKind = iota
	// InPlace: the pod takes the new form over (Update) and keeps its UID, its sandbox and its
	// containers, except those that Edit.Restart and Edit.Resize name.
	InPlace
	// Replace: the old pod is ended wholly, then the new one is made with a new UID.
	Replace
)

// Edit is what happens to a pod when its manifest changes.
type Edit struct {
	Kind EditKind
	// Spec says that the spec differs, so that the pod's generation grows. Labels and annotations
	// alone leave it.
	Spec bool
	// Restart are the containers and sidecars whose image differs: each is stopped and started
	// with the new one, in the same sandbox. A regular init container is not among them: its image
	// takes effect when it next runs.
	Restart []string
	// Resize are the containers and sidecars whose CPU or memory differs.
	Resize []string
	// Fields are the paths of the fields of the spec that differ, sorted: "spec.hostname",
	// "spec.containers[0].image".
	Fields []string
}

// Compare says what an edit from one pod to the other does. Both have their defaults. Both are as
// manifests have them, or both as they were admitted: what admission takes from the RuntimeClass
// and from the node is compared as any other field, except the overhead of one class, the priority
// of one priority class, and a node name where one of them has none. Names, UIDs, statuses,
// ephemeral containers and the annotations that the agent sets are not compared.
func Compare(old, new *corev1.Pod) Edit {
	in := Update(old, new)
	var e Edit
	e.Fields = specFields(&old.Spec, &in.Spec)
	e.Spec = len(e.Fields) > 0
	switch {
	case e.Spec:
		e.Kind = InPlace
	case !sameMeta(old, in):
		e.Kind = InPlace
		return e
	default:
		return e
	}
	rest := in.Spec.DeepCopy() // from which all that may change in place is taken back
	allowed := containers(&old.Spec, rest, &e) && tolerations(&old.Spec, rest) && deadline(&old.Spec, rest) && gates(&old.Spec, rest) &&
		equality.Semantic.DeepEqual(&old.Spec, rest) && (len(e.Resize) == 0 || runtimeclass.QOS(old) == runtimeclass.QOS(in))
	if !allowed {
		e.Kind, e.Restart, e.Resize = Replace, nil, nil
	}
	return e
}

// Update is the pod that is kept on record after an edit in place: the new one with what the old
// one has and no manifest says, which is its UID, generation and times, the overhead of its class,
// its ephemeral containers, and the pull policies that were set by default from another image. The
// generation is the old one's: who sees Edit.Spec increments it. Neither pod is changed.
func Update(old, new *corev1.Pod) *corev1.Pod {
	out := new.DeepCopy()
	out.UID, out.Generation, out.ResourceVersion = old.UID, old.Generation, old.ResourceVersion
	out.CreationTimestamp = old.CreationTimestamp
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = old.DeletionTimestamp.DeepCopy(), clone(old.DeletionGracePeriodSeconds)
	was, is := old.Spec.DeepCopy(), &out.Spec
	is.EphemeralContainers = was.EphemeralContainers
	if value(was.RuntimeClassName) == value(is.RuntimeClassName) {
		is.Overhead = was.Overhead // a class's overhead is that of when the pod was admitted
	}
	if was.PriorityClassName == is.PriorityClassName && is.Priority == nil {
		is.Priority = was.Priority
	}
	if is.NodeName == "" {
		is.NodeName = was.NodeName
	}
	return out
}

// agentAnnotations are those that the agent sets in pods that it admits. They are no edit.
func agentAnnotations() []string {
	return []string{"kubernetes.io/config.source", "kubernetes.io/config.hash", "kubernetes.io/config.seen", "io.sunaba.file"}
}

// sameMeta compares labels, and annotations except those of the agent.
func sameMeta(old, new *corev1.Pod) bool {
	without := func(all map[string]string) map[string]string {
		out := map[string]string{}
		for k, v := range all {
			if !slices.Contains(agentAnnotations(), k) {
				out[k] = v
			}
		}
		return out
	}
	return equality.Semantic.DeepEqual(old.Labels, new.Labels) &&
		equality.Semantic.DeepEqual(without(old.Annotations), without(new.Annotations))
}

// containers takes images, CPU and memory back in rest and notes them. It is false if they cannot
// be changed in place.
func containers(old, rest *corev1.PodSpec, e *Edit) bool {
	for _, list := range []struct {
		old, new []corev1.Container
		init     bool
	}{{old.InitContainers, rest.InitContainers, true}, {old.Containers, rest.Containers, false}} {
		if len(list.old) != len(list.new) {
			return false
		}
		for i := range list.new {
			was, is := &list.old[i], &list.new[i]
			runs := !list.init || runtimeclass.IsSidecar(was)
			if was.Name != is.Name {
				return false
			}
			if was.Image != is.Image {
				is.Image = was.Image
				if runs {
					e.Restart = append(e.Restart, was.Name)
				}
			}
			if resized(&was.Resources, &is.Resources) {
				if !runs {
					return false
				}
				e.Resize = append(e.Resize, was.Name)
			}
		}
	}
	return true
}

// resized takes CPU and memory of a container back and says whether they differed. A request or
// limit that is removed is not taken back: it cannot be removed in place.
func resized(old, new *corev1.ResourceRequirements) bool {
	differed := false
	for _, list := range []struct{ old, new *corev1.ResourceList }{{&old.Requests, &new.Requests}, {&old.Limits, &new.Limits}} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			was, had := (*list.old)[name]
			is, has := (*list.new)[name]
			switch {
			case !has, had && was.Cmp(is) == 0:
			case had:
				differed = true
				(*list.new)[name] = was.DeepCopy()
			default:
				differed = true
				delete(*list.new, name)
			}
		}
	}
	return differed
}

// ResizeRestarts says whether a container's resize policies ask for a restart by what differs.
func ResizeRestarts(c *corev1.Container, old, wanted *corev1.ResourceRequirements) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(r corev1.ContainerResizePolicy) bool {
		same := old.Requests.Name(r.ResourceName, "").Cmp(*wanted.Requests.Name(r.ResourceName, "")) == 0 &&
			old.Limits.Name(r.ResourceName, "").Cmp(*wanted.Limits.Name(r.ResourceName, "")) == 0
		return r.RestartPolicy == corev1.RestartContainer && !same
	})
}

// tolerations takes back those that were added. It is false if one was removed.
func tolerations(old, rest *corev1.PodSpec) bool {
	for i := range old.Tolerations {
		if !slices.ContainsFunc(rest.Tolerations, func(t corev1.Toleration) bool {
			return equality.Semantic.DeepEqual(t, old.Tolerations[i])
		}) {
			return false
		}
	}
	rest.Tolerations = old.Tolerations
	return true
}

// deadline takes activeDeadlineSeconds back if it was set or lowered.
func deadline(old, rest *corev1.PodSpec) bool {
	was, is := old.ActiveDeadlineSeconds, rest.ActiveDeadlineSeconds
	if is != nil && (was == nil || *is <= *was) {
		rest.ActiveDeadlineSeconds = was
	}
	return true
}

// gates takes scheduling gates back that were removed: the pod was not started yet.
func gates(old, rest *corev1.PodSpec) bool {
	for _, g := range rest.SchedulingGates {
		if !slices.Contains(old.SchedulingGates, g) {
			return false
		}
	}
	rest.SchedulingGates = old.SchedulingGates
	return true
}

// specFields are the paths of the fields that differ, sorted; those of containers by field.
func specFields(old, new *corev1.PodSpec) []string {
	var out []string
	for _, f := range differing("spec", old, new) {
		switch f {
		case "spec.initContainers":
			out = append(out, containerFields(f, old.InitContainers, new.InitContainers)...)
		case "spec.containers":
			out = append(out, containerFields(f, old.Containers, new.Containers)...)
		default:
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}

func containerFields(field string, old, new []corev1.Container) []string {
	if len(old) != len(new) {
		return []string{field}
	}
	var out []string
	for i := range old {
		out = append(out, differing(fmt.Sprintf("%s[%d]", field, i), &old[i], &new[i])...)
	}
	return out
}

// differing are the fields of two structs of one type that differ, by their JSON names.
func differing[T any](path string, old, new *T) []string {
	var out []string
	a, b := reflect.ValueOf(old).Elem(), reflect.ValueOf(new).Elem()
	for i := range a.NumField() {
		if !equality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			out = append(out, path+"."+name)
		}
	}
	return out
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
