package spec

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Annotations of the OCI specification: the first are containerd's names, by
// which shims group a pod's containers; the others are ours.
const (
	ContainerType    = "io.kubernetes.cri.container-type" // "sandbox" or "container"
	SandboxID        = "io.kubernetes.cri.sandbox-id"
	SandboxName      = "io.kubernetes.cri.sandbox-name"
	SandboxNamespace = "io.kubernetes.cri.sandbox-namespace"
	SandboxUID       = "io.kubernetes.cri.sandbox-uid"
	ContainerName    = "io.kubernetes.cri.container-name"
	ImageName        = "io.kubernetes.cri.image-name"

	HandlerType = "io.sunaba.handler-type"
	WasmModule  = "io.sunaba.wasm.module"
	WasmDigest  = "io.sunaba.wasm.digest"
	WasmName    = "io.sunaba.wasm.name"
	WasmListen  = "io.sunaba.wasm.listen"
	OptimizeGo  = "io.sunaba.wasm.optimize-go"
	StopWait    = "io.sunaba.stop-wait"
	LogLimits   = "io.sunaba.log-limits"
	OneStep     = "io.sunaba.one-step"
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

// Listen is a TCP listener that a guest is given, an element of WasmListen.
type Listen struct {
	Name string `json:"name"`
	Port int32  `json:"port"`
	// Optional listeners are left out when their address is in use: the pod's
	// ports do not tell which container serves them.
	Optional bool `json:"optional"`
}

func (in *Input) annotations(s *specs.Spec) error {
	s.Annotations = map[string]string{}
	passed(s.Annotations, in.Sandbox.GetAnnotations(), in.PodAnnotations)
	passed(s.Annotations, in.Container.GetAnnotations(), in.ContainerAnnotations)
	maps.Copy(s.Annotations, podAnnotations("container", in.SandboxID, in.Handler, in.Sandbox))
	set := func(key, value string) {
		if value != "" {
			s.Annotations[key] = value
		}
	}
	if _, _, scope := strings.Cut(in.CgroupsPath, ":"); scope && !path.IsAbs(in.CgroupsPath) {
		s.Annotations[subgroup] = "" // none
	}
	set(ContainerName, in.Container.GetMetadata().GetName())
	image := in.Container.GetImage().GetUserSpecifiedImage()
	if image == "" {
		image = in.Container.GetImage().GetImage()
	}
	set(ImageName, image)
	if in.OneStep && !in.Guest {
		set(OneStep, "true")
	}
	set(WasmModule, in.ModulePath)
	if in.artifact() {
		set(WasmDigest, in.ModuleDigest)
		set(WasmName, in.ModuleName)
	}
	set(LogLimits, in.LogLimits)
	if annotation(in.Container, in.Sandbox, StopWait) == "true" {
		set(StopWait, "true")
	}
	if in.Handler != runtimeclass.WASM {
		return nil
	}
	optimize, err := in.optimizeGo()
	if err != nil {
		return err
	}
	if optimize {
		set(OptimizeGo, "true")
	}
	listen, err := listeners(in.Container, in.Sandbox)
	if err != nil || len(listen) == 0 {
		return err
	}
	text, err := json.Marshal(listen)
	if err != nil {
		return invalid("annotations", "write listeners: %v", err)
	}
	set(WasmListen, string(text))
	return nil
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

// checkClasses refuses classes of block I/O and of cache and memory bandwidth
// (RDT), by whose annotations a container would be given a share that nobody
// here knows.
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
	switch word := annotation(in.Container, in.Sandbox, OptimizeGo); word {
	case "":
		return in.OptimizeGo, nil
	case "true", "false":
		return word == "true", nil
	default:
		return false, invalid("annotations["+OptimizeGo+"]", "%q is neither true nor false", word)
	}
}

// annotation is an annotation's value: the container's counts before the pod's.
func annotation(container *runtime.ContainerConfig, sandbox *runtime.PodSandboxConfig, key string) string {
	if word, ok := container.GetAnnotations()[key]; ok {
		return word
	}
	return sandbox.GetAnnotations()[key]
}

func podAnnotations(kind, id string, handler runtimeclass.Type, sandbox *runtime.PodSandboxConfig) map[string]string {
	m := sandbox.GetMetadata()
	return map[string]string{
		ContainerType:    kind,
		SandboxID:        id,
		SandboxName:      m.GetName(),
		SandboxNamespace: m.GetNamespace(),
		SandboxUID:       m.GetUid(),
		HandlerType:      string(handler),
	}
}

// listeners are the container's TCP ports, or every TCP port of the pod where
// the container's are not told: a guest without ports must not take those of
// a Linux container beside it.
func listeners(container *runtime.ContainerConfig, sandbox *runtime.PodSandboxConfig) ([]Listen, error) {
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
	var list []Listen
	for _, p := range ports {
		if p.Protocol != "" && p.Protocol != "TCP" {
			continue
		}
		if p.ContainerPort < 1 || p.ContainerPort > 65535 {
			return nil, invalid(field, "%d is not a port", p.ContainerPort)
		}
		list = appendListen(list, Listen{Name: p.Name, Port: p.ContainerPort})
	}
	return list, nil
}

func podListeners(sandbox *runtime.PodSandboxConfig) []Listen {
	var list []Listen
	for _, p := range sandbox.GetPortMappings() {
		if p.GetProtocol() == runtime.Protocol_TCP && p.GetContainerPort() > 0 {
			list = appendListen(list, Listen{Port: p.GetContainerPort(), Optional: true})
		}
	}
	return list
}

// appendListen gives a listener without a name its port as one, and adds each
// port once.
func appendListen(list []Listen, l Listen) []Listen {
	if slices.ContainsFunc(list, func(have Listen) bool { return have.Port == l.Port }) {
		return list
	}
	if l.Name == "" {
		l.Name = strconv.Itoa(int(l.Port))
	}
	return append(list, l)
}
