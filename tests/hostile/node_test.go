package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// config is the start of every node's configuration; a test may add tables.
const config = `
cgroup_driver = %q
[handlers.runc]
type = "oci"
default = true

[handlers.wasm]
type = "wasm"

[network]
conf_dir = %q
`

// target is the node under attack.
type target struct {
	*node.Watched
	t *testing.T
}

// start starts a node. more continues its configuration, which ends in the table [network].
func start(t *testing.T, more ...string) *target {
	t.Helper()
	dir, err := os.MkdirTemp(world.folder, "node-")
	if err != nil {
		t.Fatal(err)
	}
	return startIn(t, dir, more...)
}

// startIn starts one whose folder is dir. When the test ends, its pods are removed, and nothing may
// be left of them.
func startIn(t *testing.T, dir string, more ...string) *target {
	t.Helper()
	return startWith(t, node.Options{Dir: dir}, more...)
}

// startWith starts one with other options too, as startIn does.
func startWith(t *testing.T, options node.Options, more ...string) *target {
	t.Helper()
	options.Bin = world.bin
	options.Config = fmt.Sprintf(config, node.Driver(), filepath.Join(options.Dir, "cni")) + strings.Join(more, "\n")
	watched, err := node.StartWatched(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := watched.Finish(); err != nil {
			t.Error(err)
		}
	})
	return &target{Watched: watched, t: t}
}

func (n *target) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%v\nthe daemon said:\n%s", err, n.DaemonLog())
	}
}

// refused wants an error of a code whose text holds all of says.
func (n *target) refused(err error, want codes.Code, says ...string) {
	n.t.Helper()
	if grpcstatus.Code(err) != want {
		n.t.Errorf("%v; want %v", err, want)
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			n.t.Errorf("%v does not say %q", err, text)
		}
	}
}

// within is a context for a call that must return soon, whatever comes of it. The limit is long: it
// tells a slow call from one that hangs.
func (n *target) within(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(n.t.Context(), node.Slow(limit))
	n.t.Cleanup(cancel)
	return ctx
}

// push stores an image in the registry of all tests and returns its reference.
func (n *target) push(path string, image v1.Image, err error) string {
	n.t.Helper()
	n.check(err)
	ref, err := world.registry.Push(n.t.Context(), path, image)
	n.check(err)
	return ref
}

func (n *target) pull(ref string) string {
	n.t.Helper()
	answer, err := n.PullImage(n.t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}})
	n.check(err)
	return answer.GetImageRef()
}

func (n *target) podConfig() *runtime.PodSandboxConfig { return n.PodConfig("hostile", "pod") }

// pod is a sandbox that was run.
type pod struct {
	*target
	id     string
	config *runtime.PodSandboxConfig
}

// tryRun asks for a sandbox under a handler and returns the error.
func (n *target) tryRun(handler string, change ...func(*runtime.PodSandboxConfig)) (*pod, error) {
	config := n.podConfig()
	for _, c := range change {
		c(config)
	}
	answer, err := n.RunPodSandbox(n.within(node.Patience), &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return nil, err
	}
	n.Ran(answer.GetPodSandboxId())
	return &pod{target: n, id: answer.GetPodSandboxId(), config: config}, nil
}

func (n *target) run(handler string, change ...func(*runtime.PodSandboxConfig)) *pod {
	n.t.Helper()
	p, err := n.tryRun(handler, change...)
	n.check(err)
	return p
}

func (p *pod) stop() {
	p.t.Helper()
	_, err := p.StopPodSandbox(p.within(node.Patience), &runtime.StopPodSandboxRequest{PodSandboxId: p.id})
	p.check(err)
}

func (p *pod) remove() {
	p.t.Helper()
	_, err := p.RemovePodSandbox(p.within(node.Patience), &runtime.RemovePodSandboxRequest{PodSandboxId: p.id})
	p.check(err)
}

// container is a container that was created in a pod.
type container struct {
	*pod
	id, log string
}

// of is a container of an image.
func of(image string, command ...string) *runtime.ContainerConfig {
	config := node.ContainerConfig(image)
	config.Command = command
	return config
}

// sh runs a script in a busybox container.
func sh(script string) *runtime.ContainerConfig { return of(world.busybox, "/bin/sh", "-c", script) }

// tryCreate asks for a container and returns the error.
func (p *pod) tryCreate(config *runtime.ContainerConfig) (*container, error) {
	id, log, err := p.Create(p.within(node.Patience), p.id, p.config, config)
	if err != nil {
		return nil, err
	}
	return &container{pod: p, id: id, log: log}, nil
}

// start creates and starts a container.
func (p *pod) start(config *runtime.ContainerConfig) *container {
	p.t.Helper()
	c, err := p.tryCreate(config)
	p.check(err)
	_, err = p.StartContainer(p.within(node.Patience), &runtime.StartContainerRequest{ContainerId: c.id})
	p.check(err)
	return c
}

// wait waits for the container's end.
func (c *container) wait() *runtime.ContainerStatus {
	c.t.Helper()
	var status *runtime.ContainerStatus
	if !node.Within(node.Patience, func() bool {
		answer, err := c.ContainerStatus(c.t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id})
		c.check(err)
		status = answer.GetStatus()
		return status.GetState() == runtime.ContainerState_CONTAINER_EXITED
	}) {
		c.t.Fatalf("container %q does not end: %v, %q", c.id, status, c.text())
	}
	return status
}

// text is the container's log without times and tags.
func (c *container) text() string {
	c.t.Helper()
	lines, err := node.ReadLog(c.log)
	c.check(err)
	return node.Text(lines)
}
