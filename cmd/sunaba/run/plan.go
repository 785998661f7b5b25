package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Labels and annotations that the kubelet gives pods and containers.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
	annotationPorts    = "io.kubernetes.container.ports"
)

// defaultGrace is Kubernetes' for pods that name none.
const defaultGrace = 30 * time.Second

// maxHostname is the longest host name that a pod gets from its name.
const maxHostname = 63

// planOptions are what a plan takes from outside of the manifest.
type planOptions struct {
	Handler string
	Dir     string // for logs and volumes
	UID     string
	Memory  int64 // of the machine, in bytes
}

// plan is a pod in the CRI's words. Making it touches nothing.
type plan struct {
	handler    string
	sandbox    *runtime.PodSandboxConfig
	init, main []*planned
	images     []volumeImage // of volumes
	dirs       []dir         // to make before anything starts
	grace      time.Duration
}

// planned is one container of a plan.
type planned struct {
	name    string
	image   string
	policy  corev1.PullPolicy
	sidecar bool
	nonRoot bool // refuse to run as root
	config  *runtime.ContainerConfig
}

func (p *plan) name() string {
	return p.sandbox.GetMetadata().GetNamespace() + "/" + p.sandbox.GetMetadata().GetName()
}

// logFile is where a container's log is written.
func (p *plan) logFile(c *planned) string {
	return filepath.Join(p.sandbox.GetLogDirectory(), c.config.GetLogPath())
}

func (p *plan) all() []*planned { return append(slices.Clone(p.init), p.main...) }

func newPlan(m *manifest, o planOptions) (*plan, error) {
	pod := m.pod
	if pod.UID != "" {
		o.UID = string(pod.UID)
	}
	p := &plan{handler: o.Handler, grace: defaultGrace}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		if *s < 0 {
			return nil, m.doc.Errorf("pod %q: spec.terminationGracePeriodSeconds: %d is negative", pod.Name, *s)
		}
		p.grace = time.Duration(*s) * time.Second
	}
	v, err := planVolumes(pod, o.Dir)
	if err != nil {
		return nil, m.doc.Errorf("pod %q: %w", pod.Name, err)
	}
	p.sandbox = sandboxConfig(m, o)
	p.dirs = append(p.dirs, dir{path: p.sandbox.LogDirectory, mode: 0o755})
	p.dirs = append(p.dirs, v.dirs...)
	p.images = v.pulls
	for _, l := range containerLists(pod) {
		for i := range l.list {
			c, err := planContainer(&l.list[i], fmt.Sprintf("%s[%d]", l.field, i), m, v, o)
			if err != nil {
				return nil, m.doc.Errorf("pod %q: %w", pod.Name, err)
			}
			p.dirs = append(p.dirs, dir{path: filepath.Dir(p.logFile(c)), mode: 0o755})
			if l.field == "spec.initContainers" {
				p.init = append(p.init, c)
			} else {
				p.main = append(p.main, c)
			}
		}
	}
	return p, nil
}

func sandboxConfig(m *manifest, o planOptions) *runtime.PodSandboxConfig {
	pod := m.pod
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelPodName], labels[labelPodNamespace], labels[labelPodUID] = pod.Name, pod.Namespace, o.UID
	config := &runtime.PodSandboxConfig{
		Metadata:     &runtime.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: o.UID},
		LogDirectory: filepath.Join(o.Dir, "logs"),
		Labels:       labels,
		Annotations:  maps.Clone(pod.Annotations),
		Linux: &runtime.LinuxPodSandboxConfig{
			SecurityContext: sandboxSecurity(pod),
			Overhead:        overheadResources(pod.Spec.Overhead),
			Resources:       sandboxResources(pod),
		},
	}
	if sc := pod.Spec.SecurityContext; sc != nil && len(sc.Sysctls) > 0 {
		config.Linux.Sysctls = map[string]string{}
		for _, s := range sc.Sysctls {
			config.Linux.Sysctls[s.Name] = s.Value
		}
	}
	if d := pod.Spec.DNSConfig; d != nil {
		config.DnsConfig = &runtime.DNSConfig{Servers: d.Nameservers, Searches: d.Searches}
		for _, opt := range d.Options {
			text := opt.Name
			if opt.Value != nil && *opt.Value != "" {
				text += ":" + *opt.Value
			}
			config.DnsConfig.Options = append(config.DnsConfig.Options, text)
		}
	}
	if !pod.Spec.HostNetwork {
		config.Hostname = hostname(pod)
		config.PortMappings = portMappings(pod)
	}
	return config
}

func hostname(pod *corev1.Pod) string {
	name := pod.Spec.Hostname
	if name == "" {
		name = pod.Name
	}
	for name = name[:min(len(name), maxHostname)]; len(name) > 0; name = name[:len(name)-1] {
		if last := name[len(name)-1]; last != '-' && last != '.' {
			break
		}
	}
	return name
}

var protocols = map[corev1.Protocol]runtime.Protocol{
	corev1.ProtocolTCP: runtime.Protocol_TCP, corev1.ProtocolUDP: runtime.Protocol_UDP, corev1.ProtocolSCTP: runtime.Protocol_SCTP,
}

func portMappings(pod *corev1.Pod) []*runtime.PortMapping {
	var list []*runtime.PortMapping
	for _, l := range containerLists(pod) {
		for i := range l.list {
			if l.field == "spec.initContainers" && !runtimeclass.IsSidecar(&l.list[i]) {
				continue
			}
			for _, p := range l.list[i].Ports {
				list = append(list, &runtime.PortMapping{
					Protocol: protocols[p.Protocol], ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
				})
			}
		}
	}
	return list
}

func planContainer(c *corev1.Container, at string, m *manifest, v *volumes, o planOptions) (*planned, error) {
	pod := m.pod
	mounts, err := v.mounts(at, c)
	if err != nil {
		return nil, err
	}
	security, err := containerSecurity(pod, c, at)
	if err != nil {
		return nil, err
	}
	// A container without ports says so: else a guest would be given those of the whole pod.
	ports, err := json.Marshal(append([]corev1.ContainerPort{}, c.Ports...))
	if err != nil {
		return nil, fmt.Errorf("%s.ports: %w", at, err)
	}
	annotations := map[string]string{annotationPorts: string(ports)}
	env, vars := environment(c)
	config := &runtime.ContainerConfig{
		Metadata:    &runtime.ContainerMetadata{Name: c.Name},
		Image:       &runtime.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image, RuntimeHandler: o.Handler},
		Command:     expandAll(c.Command, vars),
		Args:        expandAll(c.Args, vars),
		WorkingDir:  c.WorkingDir,
		Envs:        env,
		Mounts:      mounts,
		Labels:      map[string]string{labelContainerName: c.Name, labelPodName: pod.Name, labelPodNamespace: pod.Namespace, labelPodUID: o.UID},
		Annotations: annotations,
		LogPath:     filepath.Join(c.Name, "0.log"),
		Tty:         c.TTY,
		Linux:       &runtime.LinuxContainerConfig{SecurityContext: security, Resources: containerResources(pod, c, o.Memory)},
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		n, ok := runtime.Signal_value["SIGNAL_"+signalName(*c.Lifecycle.StopSignal)]
		if !ok {
			return nil, invalid(at+".lifecycle.stopSignal", "%q is not known", *c.Lifecycle.StopSignal)
		}
		config.StopSignal = runtime.Signal(n)
	}
	return &planned{
		name: c.Name, image: c.Image, policy: c.ImagePullPolicy, config: config,
		sidecar: runtimeclass.IsSidecar(c), nonRoot: nonRoot(pod, c),
	}, nil
}

// makeDirs makes the directories of logs and volumes.
func (p *plan) makeDirs() error {
	for _, d := range p.dirs {
		if err := d.make(); err != nil {
			return err
		}
	}
	return nil
}

// dir is a directory to make. Mode is set whatever the umask.
type dir struct {
	path string
	mode os.FileMode
	gid  int // -1 or 0: leave
}

func (d dir) make() error {
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if d.gid > 0 {
		if err := os.Chown(d.path, -1, d.gid); err != nil {
			return fmt.Errorf("give directory to the pod's group: %w", err)
		}
	}
	if err := os.Chmod(d.path, d.mode); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}
