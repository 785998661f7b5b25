package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// pod is a pod of one container.
type pod struct {
	id, container, log string
	address            string
	shim, process      int // the shim's process id, and that of the container's first process
}

// push makes an image of a program and pulls it onto the node.
func push(ctx context.Context, registry *oci.Registry, n *node.Node, name string, platform v1.Platform, program []byte) (string, error) {
	return pushFiles(ctx, registry, n, name, platform, v1.Config{Entrypoint: []string{"/program"}}, oci.Program("program", program))
}

// pushFiles does it of files.
func pushFiles(ctx context.Context, registry *oci.Registry, n *node.Node, name string, platform v1.Platform, config v1.Config, files ...oci.File) (string, error) {
	layer, err := oci.Layer(files...)
	if err != nil {
		return "", err
	}
	image, err := oci.Image(platform, config, layer)
	if err != nil {
		return "", err
	}
	ref, err := registry.Push(ctx, "bench/"+name+":1", image)
	if err != nil {
		return "", err
	}
	if _, err := n.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}}); err != nil {
		return "", fmt.Errorf("pull %q: %w", ref, err)
	}
	return ref, nil
}

// runPod runs one pod whose container has port 8080.
func runPod(ctx context.Context, n *node.Node, handler, image, name string, annotations map[string]string) (*pod, error) {
	config := n.PodConfig("default", name)
	config.Annotations = annotations
	config.PortMappings = []*runtime.PortMapping{{ContainerPort: 8080, Protocol: runtime.Protocol_TCP}}
	sandbox, err := n.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return nil, fmt.Errorf("run pod: %w", err)
	}
	p := &pod{id: sandbox.GetPodSandboxId()}
	if p.container, p.log, err = n.Create(ctx, p.id, config, node.ContainerConfig(image)); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	if _, err := n.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: p.container}); err != nil {
		return nil, fmt.Errorf("start container: %w", err)
	}
	status, err := n.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		return nil, err
	}
	p.address = status.GetStatus().GetNetwork().GetIp() + ":8080"
	if p.shim, err = measure.ShimPID(n, p.id); err != nil {
		return nil, err
	}
	inside, err := n.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: p.container, Verbose: true})
	if err != nil {
		return nil, err
	}
	var info struct {
		Pid int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(inside.GetInfo()["info"]), &info); err != nil || info.Pid == 0 {
		return nil, fmt.Errorf("read the process id of container %q: %q (%v)", p.container, inside.GetInfo()["info"], err)
	}
	p.process = info.Pid
	return p, nil
}

// awaitUp waits until the server says that it is up.
func (p *pod) awaitUp(ctx context.Context) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if said, err := os.ReadFile(p.log); err == nil && strings.Contains(string(said), "up") {
			return nil
		}
		if err := measure.Wait(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("pod %q: its server is not up after 30 seconds", p.id)
}
