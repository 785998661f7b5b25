package spec

import (
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

// Annotations of the OCI specification by containerd's names, for OCI hooks and runtimes. What the
// shim reads is in package annotation.
const (
	SandboxName      = "io.kubernetes.cri.sandbox-name"
	SandboxNamespace = "io.kubernetes.cri.sandbox-namespace"
	SandboxUID       = "io.kubernetes.cri.sandbox-uid"
	ContainerName    = "io.kubernetes.cri.container-name"
	ImageName        = "io.kubernetes.cri.image-name"
)

// subgroup is crun's own: the cgroup that it makes within a scope of systemd, "container" if
// nothing is said. Limits would be there, while the container's cgroup is known to be the scope.
// Other runtimes do not know it.
const subgroup = "run.oci.systemd.subgroup"

// PortsAnnotation is where the kubelet lists a container's ports, as JSON, if it has any.
// It gives every container the other one.
const (
	PortsAnnotation    = "io.kubernetes.container.ports"
	restartsAnnotation = "io.kubernetes.container.restartCount"
)

func (in *Input) annotations(s *specs.Spec) error {
	s.Annotations = map[string]string{}
	passed(s.Annotations, in.Sandbox.GetAnnotations(), in.PodAnnotations)
	passed(s.Annotations, in.Container.GetAnnotations(), in.ContainerAnnotations)
	maps.Copy(s.Annotations, podAnnotations(in.Sandbox))
	if _, _, scope := strings.Cut(in.CgroupsPath, ":"); scope && !path.IsAbs(in.CgroupsPath) {
		s.Annotations[subgroup] = "" // none
	}
	if name := in.Container.GetMetadata().GetName(); name != "" {
		s.Annotations[ContainerName] = name
	}
	image := cmp.Or(in.Container.GetImage().GetUserSpecifiedImage(), in.Container.GetImage().GetImage())
	if image != "" {
		s.Annotations[ImageName] = image
	}
	facts, err := in.facts()
	if err != nil {
		return err
	}
	maps.Copy(s.Annotations, facts.Annotations())
	return nil
}

// facts are what the shim is told.
func (in *Input) facts() (annotation.Facts, error) {
	f := annotation.Facts{
		SandboxID: in.SandboxID, HandlerType: string(in.Handler), Program: annotation.OCI,
		Module:    in.Module,
		StopWait:  own(in.Container, in.Sandbox, annotation.StopWait) == "true",
		LogLimits: in.LogLimits,
		OneStep:   in.OneStep && !in.Guest,

		AwaitAttach: in.Container.GetAnnotations()[annotation.AwaitAttach] == "true",
	}
	if in.Guest {
		f.Program = annotation.Wasm
	}
	if in.Handler != runtimeclass.WASM {
		return f, nil
	}
	var err error
	if f.OptimizeGo, err = in.optimizeGo(); err != nil {
		return f, err
	}
	if f.Listeners, err = listeners(in.Container, in.Sandbox); err != nil {
		return f, err
	}
	var name string
	f.HTTP, name, err = annotation.ReadHTTP(func(name string) string { return own(in.Container, in.Sandbox, name) })
	if err != nil {
		return f, invalid("annotations["+name+"]", "%v", err)
	}
	return f, nil
}

// passed adds the annotations that match one of the patterns, but none of those
// by which shims are told what they have to do.
func passed(to, annotations map[string]string, patterns []string) {
	for key, value := range annotations {
		if strings.HasPrefix(key, "io.kubernetes.cri.") || strings.HasPrefix(key, "io.sunaba.") {
			continue
		}
		if slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, key); return ok && err == nil }) {
			to[key] = value
		}
	}
}

// checkClasses refuses classes of block I/O and of cache and memory bandwidth (RDT), by whose
// annotations a container would be given a share that nobody here knows.
func checkClasses(container *runtime.ContainerConfig, sandbox *runtime.PodSandboxConfig) error {
	for _, kind := range []string{"blockio", "rdt"} {
		pod := kind + ".resources.beta.kubernetes.io/"
		own, forContainer := "io.kubernetes.cri."+kind+"-class", pod+"container."+container.GetMetadata().GetName()
		for _, a := range []struct{ key, class string }{
			{own, container.GetAnnotations()[own]},
			{forContainer, sandbox.GetAnnotations()[forContainer]},
			{pod + "pod", sandbox.GetAnnotations()[pod+"pod"]},
		} {
			if a.class != "" {
				return unimplemented("annotations["+a.key+"]", "class %q is asked for, but this server has no %s classes", a.class, kind)
			}
		}
	}
	return nil
}

// optimizeGo says whether the functions of Go's guests are rewritten.
func (in *Input) optimizeGo() (bool, error) {
	switch word := own(in.Container, in.Sandbox, annotation.OptimizeGo); word {
	case "":
		return in.OptimizeGo, nil
	case "true", "false":
		return word == "true", nil
	default:
		return false, invalid("annotations["+annotation.OptimizeGo+"]", "%q is neither true nor false", word)
	}
}

// own is an annotation's value: the container's counts before the pod's.
func own(container *runtime.ContainerConfig, sandbox *runtime.PodSandboxConfig, key string) string {
	if word, ok := container.GetAnnotations()[key]; ok {
		return word
	}
	return sandbox.GetAnnotations()[key]
}

func podAnnotations(sandbox *runtime.PodSandboxConfig) map[string]string {
	m := sandbox.GetMetadata()
	return map[string]string{SandboxName: m.GetName(), SandboxNamespace: m.GetNamespace(), SandboxUID: m.GetUid()}
}

// listeners are the container's TCP ports, or every TCP port of the pod where the container's are
// not told: a guest without ports must not take those of a Linux container beside it.
func listeners(container *runtime.ContainerConfig, sandbox *runtime.PodSandboxConfig) ([]annotation.Listener, error) {
	text, ok := container.GetAnnotations()[PortsAnnotation]
	if _, kubelet := container.GetAnnotations()[restartsAnnotation]; !ok && kubelet {
		return nil, nil
	}
	if !ok {
		return podListeners(sandbox), nil
	}
	var ports []struct {
		Name          string `json:"name"`
		ContainerPort int32  `json:"containerPort"`
		Protocol      string `json:"protocol"`
	}
	field := "annotations[" + PortsAnnotation + "]"
	if err := json.Unmarshal([]byte(text), &ports); err != nil {
		return nil, invalid(field, "%v", err)
	}
	var list []annotation.Listener
	for _, p := range ports {
		if p.Protocol != "" && p.Protocol != "TCP" {
			continue
		}
		if p.ContainerPort < 1 || p.ContainerPort > 65535 {
			return nil, invalid(field, "%d is not a port", p.ContainerPort)
		}
		list = appendListen(list, annotation.Listener{Name: p.Name, Port: uint16(p.ContainerPort)})
	}
	return list, nil
}

func podListeners(sandbox *runtime.PodSandboxConfig) []annotation.Listener {
	var list []annotation.Listener
	for _, p := range sandbox.GetPortMappings() {
		if p.GetProtocol() == runtime.Protocol_TCP && p.GetContainerPort() > 0 && p.GetContainerPort() <= 65535 {
			list = appendListen(list, annotation.Listener{Port: uint16(p.GetContainerPort()), Optional: true})
		}
	}
	return list
}

// appendListen gives a listener without a name its port as one, and adds each port once.
func appendListen(list []annotation.Listener, l annotation.Listener) []annotation.Listener {
	if slices.ContainsFunc(list, func(have annotation.Listener) bool { return have.Port == l.Port }) {
		return list
	}
	l.Name = cmp.Or(l.Name, strconv.Itoa(int(l.Port)))
	return append(list, l)
}
