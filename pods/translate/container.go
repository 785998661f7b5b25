package translate

import (
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostsPath is where a container has its hosts file.
const hostsPath = "/etc/hosts"

// Container is the configuration of one container of the pod.
//
// # Errors
//
// A *ConfigError in every case, which says with which reason the container waits. In it are
// ErrNotFound for a missing ConfigMap, Secret or key, ErrInvalidArgument for a field that cannot be
// translated, ErrFailedPrecondition for an image or node that the pod cannot run with, and
// ErrNotImplemented for what is not done.
func Container(in Input, c *corev1.Container, o ContainerInput) (*runtime.ContainerConfig, error) {
	config, err := container(in, c, o)
	if err != nil {
		return nil, configError(err)
	}
	return config, nil
}

func container(in Input, c *corev1.Container, o ContainerInput) (*runtime.ContainerConfig, error) {
	if o.Image == nil {
		return nil, classed(errdefs.ErrFailedPrecondition, "translate container %q: its image is not known", c.Name)
	}
	envs, err := environment(in, c)
	if err != nil {
		return nil, err
	}
	if err := CheckNonRoot(in.Pod, c, o.Image); err != nil {
		return nil, err
	}
	security, err := containerSecurity(in, c, o)
	if err != nil {
		return nil, err
	}
	annotations, err := containerAnnotations(in, c, o)
	if err != nil {
		return nil, err
	}
	vars := Variables(envs)
	budget := maxStrings - size(envs)
	command, err := expandAll("command", c.Command, vars, &budget)
	if err != nil {
		return nil, err
	}
	args, err := expandAll("args", c.Args, vars, &budget)
	if err != nil {
		return nil, err
	}
	config := &runtime.ContainerConfig{
		Metadata:    &runtime.ContainerMetadata{Name: c.Name, Attempt: o.Attempt},
		Image:       &runtime.ImageSpec{Image: o.ImageRef, UserSpecifiedImage: c.Image, RuntimeHandler: in.Handler},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        envs,
		Mounts:      mounts(in, c, o),
		Labels:      containerLabels(in.Pod, c),
		Annotations: annotations,
		LogPath:     LogPath(c.Name, o.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux:       &runtime.LinuxContainerConfig{SecurityContext: security, Resources: Resources(in, c)},
	}
	if config.Image.Image == "" {
		config.Image.Image = c.Image
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		if config.StopSignal, err = stopSignal(*c.Lifecycle.StopSignal); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// stopSignal is a signal in the CRI's words, in which SIGRTMIN+1 is SIGRTMINPLUS1.
func stopSignal(s corev1.Signal) (runtime.Signal, error) {
	n, ok := runtime.Signal_value["SIGNAL_"+strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(s))]
	if !ok || n == int32(runtime.Signal_SIGNAL_RUNTIME_DEFAULT) {
		return 0, invalid("lifecycle.stopSignal", "%q is not known", s)
	}
	return runtime.Signal(n), nil
}

// mounts are those of the volumes, the hosts file unless the container mounts its own, and the file
// of the termination message. In a user namespace each shows its owners as the pod has them.
func mounts(in Input, c *corev1.Container, o ContainerInput) []*runtime.Mount {
	var list []*runtime.Mount
	hosts := in.Hosts != ""
	for _, m := range o.Mounts {
		list = append(list, mapped(in, m))
		hosts = hosts && path.Clean(m.GetContainerPath()) != hostsPath
	}
	for _, m := range c.VolumeMounts {
		hosts = hosts && path.Clean(m.MountPath) != hostsPath
	}
	if hosts {
		list = append(list, mapped(in, &runtime.Mount{ContainerPath: hostsPath, HostPath: in.Hosts, SelinuxRelabel: true}))
	}
	if o.TerminationLog != "" && c.TerminationMessagePath != "" {
		list = append(list, mapped(in, &runtime.Mount{
			ContainerPath: c.TerminationMessagePath, HostPath: o.TerminationLog, SelinuxRelabel: true,
		}))
	}
	return list
}

// mapped is a mount with the pod's user namespace, if it has one.
func mapped(in Input, m *runtime.Mount) *runtime.Mount {
	if !OwnUsers(in.Pod) {
		return m
	}
	ids := userNamespace(in)
	m = proto.CloneOf(m)
	m.UidMappings, m.GidMappings = ids.GetUids(), ids.GetGids()
	return m
}
