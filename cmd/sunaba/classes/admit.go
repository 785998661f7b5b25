package classes

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Admit prints the pods of a manifest as the API server's RuntimeClass admission leaves them, as
// YAML that can be applied. The manifest may define classes itself, beside those that are given.
// What each pod comes to is said on notes: handler, overhead, effective requests and limits, class
// of service.
//
// # Errors
//
// ErrInvalidArgument with file and line for a manifest that is not right; what runtimeclass.Admit
// refuses, with file and line. Nothing is printed then.
func Admit(out, notes io.Writer, file string, data []byte, classes []nodev1.RuntimeClass) error {
	pods, classes, err := parse(file, data, classes)
	if err != nil {
		return err
	}
	var texts [][]byte
	for _, p := range pods {
		admitted, err := runtimeclass.Admit(p.pod, classes)
		if err != nil {
			return fmt.Errorf("%s:%d: pod %q: %w", p.doc.File, p.doc.Line, p.pod.Name, err)
		}
		text, err := manifest(admitted)
		if err != nil {
			return p.doc.Errorf("pod %q: %w", admitted.Name, err)
		}
		texts = append(texts, text)
		describe(notes, admitted, classes)
	}
	for i, text := range texts {
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

type document struct {
	doc runtimeclass.Document
	pod *corev1.Pod
}

// parse reads pods and RuntimeClasses from one file.
func parse(file string, data []byte, classes []nodev1.RuntimeClass) ([]document, []nodev1.RuntimeClass, error) {
	var pods []document
	classes = slices.Clip(classes)
	for _, d := range runtimeclass.Documents(file, data) {
		meta, err := d.TypeMeta()
		if err != nil {
			return nil, nil, err
		}
		switch {
		case meta.Kind == "Pod" && meta.APIVersion == "v1":
			p := document{doc: d, pod: &corev1.Pod{}}
			if err := d.Decode(p.pod); err != nil {
				return nil, nil, err
			}
			runtimeclass.Default(p.pod)
			pods = append(pods, p)
		case meta.Kind == "RuntimeClass":
			rc, err := d.RuntimeClass()
			if err != nil {
				return nil, nil, err
			}
			if _, err := runtimeclass.Find(classes, rc.Name); err == nil {
				return nil, nil, d.Errorf("RuntimeClass %q is defined twice", rc.Name)
			}
			classes = append(classes, rc)
		default:
			return nil, nil, d.Errorf("kind %q of %q: want a Pod of v1 or a RuntimeClass", meta.Kind, meta.APIVersion)
		}
	}
	if len(pods) == 0 {
		return nil, nil, fmt.Errorf("%s: no Pod in it: %w", file, errdefs.ErrInvalidArgument)
	}
	return pods, classes, nil
}

// manifest writes a pod without what only the API server fills in.
func manifest(pod *corev1.Pod) ([]byte, error) {
	js, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(js, &fields); err != nil {
		return nil, err
	}
	if status, ok := fields["status"].(map[string]any); ok && len(status) == 0 {
		delete(fields, "status")
	}
	if meta, ok := fields["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	return yaml.Marshal(fields)
}

func describe(out io.Writer, pod *corev1.Pod, classes []nodev1.RuntimeClass) {
	fmt.Fprintf(out, "pod %q: ", pod.Name)
	if name := pod.Spec.RuntimeClassName; name != nil && *name != "" {
		rc, err := runtimeclass.Find(classes, *name)
		if err == nil {
			fmt.Fprintf(out, "class %q, handler %q, ", rc.Name, rc.Handler)
		}
	} else {
		fmt.Fprint(out, "no class, the node's default handler, ")
	}
	fmt.Fprintf(out, "overhead %s\n  effective requests: %s\n  effective limits: %s\n  quality of service: %s\n",
		runtimeclass.Quantities(pod.Spec.Overhead),
		runtimeclass.Quantities(runtimeclass.EffectiveRequests(pod, pod.Spec.Overhead)),
		runtimeclass.Quantities(runtimeclass.EffectiveLimits(pod, pod.Spec.Overhead)), runtimeclass.QOS(pod))
}
