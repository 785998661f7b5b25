package podcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/pods/api"
)

// connect connects to the CRI server that --socket names, else to that which the agent tells. The
// caller closes the connection.
func (p Places) connect(ctx context.Context, cmd *cli.Command, c *api.Client) (*dial.Client, error) {
	socket := cmd.String("socket")
	if socket == "" {
		info, err := c.Server(ctx)
		if err != nil {
			return nil, err
		}
		socket = cmp.Or(info.CRISocket, p.Socket)
	}
	return dial.Connect(ctx, socket)
}

// running is a container that runs.
type running struct {
	pod       *corev1.Pod
	container corev1.Container
	id        string
}

// findRunning finds the container of a pod that a command's flag --container names, else the one
// that commands take. It must run.
func findRunning(ctx context.Context, cmd *cli.Command, c *api.Client, arg string) (running, error) {
	name, err := podName(arg)
	if err != nil {
		return running{}, fmt.Errorf("%s: %w", cmd.Name, err)
	}
	return findRunningIn(ctx, cmd, c, cmd.String("namespace"), name)
}

// findRunningIn is findRunning for a pod whose name and namespace are known.
func findRunningIn(ctx context.Context, cmd *cli.Command, c *api.Client, namespace, name string) (running, error) {
	pod, err := findPod(ctx, c, namespace, name)
	if err != nil {
		return running{}, err
	}
	container, err := pickContainer(pod, cmd.String("container"), cmd.Root().ErrWriter)
	if err != nil {
		return running{}, fmt.Errorf("%s: %w", cmd.Name, err)
	}
	status, err := statusOf(pod, container)
	if err != nil {
		return running{}, fmt.Errorf("%s: %w", cmd.Name, err)
	}
	if status.State.Running == nil {
		return running{}, fmt.Errorf("%s: container %q in pod %q does not run (the pod is %s)", cmd.Name, container, pod.Name, pod.Status.Phase)
	}
	return running{pod: pod, container: containerOf(pod, container), id: bareID(status.ContainerID)}, nil
}

// containerOf is a container of a pod as it was asked for, of any kind.
func containerOf(p *corev1.Pod, name string) corev1.Container {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name == name {
			return c
		}
	}
	for _, c := range p.Spec.EphemeralContainers {
		if c.Name == name {
			return corev1.Container(c.EphemeralContainerCommon)
		}
	}
	return corev1.Container{Name: name}
}
