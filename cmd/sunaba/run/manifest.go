package run

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// manifest is what the files say.
type manifest struct {
	doc     runtimeclass.Document // the pod's
	pod     *corev1.Pod           // with its class's overhead, once handler has found it
	classes []nodev1.RuntimeClass
}

func readManifest(o Options) (*manifest, error) {
	data, err := readInput(o)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(o.File, data)
	if err != nil {
		return nil, err
	}
	for _, file := range o.RuntimeClassFiles {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read RuntimeClasses: %w", err)
		}
		classes, err := runtimeclass.Parse(file, data)
		if err != nil {
			return nil, err
		}
		for _, rc := range classes {
			if err := m.addClass(rc); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return m, nil
}

func readInput(o Options) ([]byte, error) {
	if o.Reader == nil {
		data, err := os.ReadFile(o.File)
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		return data, nil
	}
	data, err := io.ReadAll(o.Reader)
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w", o.File, err)
	}
	return data, nil
}

// parseManifest wants exactly one Pod; other documents are RuntimeClasses.
func parseManifest(file string, data []byte) (*manifest, error) {
	m := &manifest{}
	for _, d := range runtimeclass.Documents(file, data) {
		meta, err := d.TypeMeta()
		if err != nil {
			return nil, err
		}
		switch {
		case meta.Kind == "RuntimeClass":
			rc, err := d.RuntimeClass()
			if err != nil {
				return nil, err
			}
			if err := m.addClass(rc); err != nil {
				return nil, d.Errorf("%w", err)
			}
		case meta.Kind != "Pod" || meta.APIVersion != "v1":
			return nil, d.Errorf("kind %q of %q cannot be run; want a Pod of v1", meta.Kind, meta.APIVersion)
		case m.pod != nil:
			return nil, d.Errorf("a second Pod; the first is at line %d", m.doc.Line)
		default:
			m.doc, m.pod = d, &corev1.Pod{}
			if err := d.Decode(m.pod); err != nil {
				return nil, err
			}
		}
	}
	if m.pod == nil {
		return nil, fmt.Errorf("%s: no Pod in it: %w", file, errdefs.ErrInvalidArgument)
	}
	setDefaults(m.pod)
	if err := checkPod(m.pod); err != nil {
		return nil, m.doc.Errorf("pod %q: %w", m.pod.Name, err)
	}
	return m, nil
}

func (m *manifest) addClass(rc nodev1.RuntimeClass) error {
	if _, err := runtimeclass.Find(m.classes, rc.Name); err == nil {
		return fmt.Errorf("RuntimeClass %q is defined twice: %w", rc.Name, errdefs.ErrInvalidArgument)
	}
	m.classes = append(m.classes, rc)
	return nil
}

// handler finds the handler of the pod's RuntimeClass among those that the
// server has, and with the class its overhead. A class that is not defined
// can be a handler's name. "" is the server's default.
func (m *manifest) handler(override string, have []string) (string, error) {
	var names []string
	for _, n := range have {
		if n != "" {
			names = append(names, n)
		}
	}
	name := override
	if class := m.pod.Spec.RuntimeClassName; class != nil && *class != "" {
		rc, err := runtimeclass.Find(m.classes, *class)
		switch {
		case err == nil:
			if name == "" {
				name = rc.Handler
			}
		case name == "" && slices.Contains(names, *class):
			name = *class
		case name == "":
			return "", m.doc.Errorf("pod %q: spec.runtimeClassName: %w, and no handler of the server has that name (handlers: %s)",
				m.pod.Name, err, strings.Join(names, ", "))
		}
	}
	if name != "" && !slices.Contains(names, name) {
		return "", fmt.Errorf("runtime handler %q is not configured in the server (handlers: %s): %w",
			name, strings.Join(names, ", "), errdefs.ErrInvalidArgument)
	}
	return name, m.admit()
}

// admit does to the pod what the API server does when its class is known.
func (m *manifest) admit() error {
	pod := m.pod.DeepCopy()
	if class := pod.Spec.RuntimeClassName; class != nil {
		if _, err := runtimeclass.Find(m.classes, *class); err != nil {
			pod.Spec.RuntimeClassName = nil // a handler's name, as good as a class that declares nothing
		}
	}
	admitted, err := runtimeclass.Admit(pod, m.classes)
	if err != nil {
		return m.doc.Errorf("pod %q: %w", pod.Name, err)
	}
	admitted.Spec.RuntimeClassName = m.pod.Spec.RuntimeClassName
	m.pod = admitted
	return nil
}

// setDefaults does what the API server does for a pod that is created, as far
// as it concerns what is run.
func setDefaults(pod *corev1.Pod) {
	if pod.Namespace == "" {
		pod.Namespace = "default"
	}
	runtimeclass.Default(pod)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for j := range list[i].Ports {
				if p := &list[i].Ports[j]; p.Protocol == "" {
					p.Protocol = corev1.ProtocolTCP
				}
			}
			if list[i].ImagePullPolicy == "" {
				list[i].ImagePullPolicy = defaultPolicy(list[i].Image)
			}
		}
	}
}

// defaultPolicy pulls what can change under its name.
func defaultPolicy(image string) corev1.PullPolicy {
	if strings.Contains(image, "@") {
		return corev1.PullIfNotPresent
	}
	last := image[strings.LastIndex(image, "/")+1:]
	if _, tag, ok := strings.Cut(last, ":"); ok && tag != "latest" {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

// checkPod refuses what Kubernetes would refuse and what cannot be run here.
func checkPod(pod *corev1.Pod) error {
	if errs := validation.IsDNS1123Subdomain(pod.Name); len(errs) > 0 {
		return invalid("metadata.name", "%s", strings.Join(errs, "; "))
	}
	if errs := validation.IsDNS1123Label(pod.Namespace); len(errs) > 0 {
		return invalid("metadata.namespace", "%s", strings.Join(errs, "; "))
	}
	if len(pod.Spec.Containers) == 0 {
		return invalid("spec.containers", "is empty")
	}
	if err := unsupported(pod); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, l := range containerLists(pod) {
		for i := range l.list {
			c := &l.list[i]
			at := fmt.Sprintf("%s[%d]", l.field, i)
			if errs := validation.IsDNS1123Label(c.Name); len(errs) > 0 {
				return invalid(at+".name", "%s", strings.Join(errs, "; "))
			}
			if names[c.Name] {
				return invalid(at+".name", "%q is the name of another container too", c.Name)
			}
			names[c.Name] = true
			if err := checkContainer(at, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkContainer(at string, c *corev1.Container) error {
	if c.Image == "" {
		return invalid(at+".image", "is empty")
	}
	switch c.ImagePullPolicy {
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		return invalid(at+".imagePullPolicy", "%q is not known", c.ImagePullPolicy)
	}
	for i, p := range c.Ports {
		if p.ContainerPort < 1 || p.ContainerPort > 65535 {
			return invalid(fmt.Sprintf("%s.ports[%d].containerPort", at, i), "%d is not a port", p.ContainerPort)
		}
		if p.HostPort < 0 || p.HostPort > 65535 {
			return invalid(fmt.Sprintf("%s.ports[%d].hostPort", at, i), "%d is not a port", p.HostPort)
		}
		if _, ok := protocols[p.Protocol]; !ok {
			return invalid(fmt.Sprintf("%s.ports[%d].protocol", at, i), "%q is not known", p.Protocol)
		}
	}
	if err := runtimeclass.CheckQuantities(at+".resources.requests", c.Resources.Requests); err != nil {
		return err
	}
	return runtimeclass.CheckQuantities(at+".resources.limits", c.Resources.Limits)
}

type containerList struct {
	field string
	list  []corev1.Container
}

func containerLists(pod *corev1.Pod) []containerList {
	return []containerList{{"spec.initContainers", pod.Spec.InitContainers}, {"spec.containers", pod.Spec.Containers}}
}
