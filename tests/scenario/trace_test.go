package scenario

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/collector"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/stage"
)

// startTraced starts a node that exports traces to a collector.
func startTraced(t *testing.T, tables string, env ...string) (*machine, *collector.Collector) {
	t.Helper()
	c := collector.Start()
	t.Cleanup(c.Close)
	return startTracedTo(t, c.URL, tables, env...), c
}

func startTracedTo(t *testing.T, url, tables string, env ...string) *machine {
	t.Helper()
	env = append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_BSP_SCHEDULE_DELAY=20"}, env...)
	return &machine{Machine: world.StartIn(t, env, world.NodeDir(t), tables), t: t}
}

// caller is the span of a client that traces, as a kubelet does.
type caller struct{ trace, span string }

func newCaller() caller {
	return caller{fmt.Sprintf("%032x", node.Serial()+1<<40), fmt.Sprintf("%016x", node.Serial()+1<<40)}
}

// in is a context of requests of the caller.
func (c caller) in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+c.trace+"-"+c.span+"-01")
}

// tree waits until spans of these names are below the caller's, and returns all.
func (c caller) tree(t *testing.T, from *collector.Collector, want ...string) collector.Tree {
	t.Helper()
	var tree collector.Tree
	var names []string
	if !node.Within(node.Patience, func() bool {
		tree = from.Of(c.trace)
		names = tree.Below(c.span)
		return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(names, name) })
	}) {
		t.Fatalf("spans:\n%s\nwant also:\n%s", strings.Join(names, "\n"), strings.Join(slices.DeleteFunc(want, func(name string) bool { return slices.Contains(names, name) }), "\n"))
	}
	return tree
}

// methods are what the spans of the CRI's requests are named by.
const (
	runtimeService = "runtime.v1.RuntimeService/"
	imageService   = "runtime.v1.ImageService/"
	taskService    = "containerd.task.v3.Task/"
)

// The requests that make and end a pod are spans below the client's, and their steps spans below
// them, under an OCI runtime and under WebAssembly.
func TestTracesOfAPod(t *testing.T) {
	m, from := startTraced(t, stage.Handlers, "OTEL_RESOURCE_ATTRIBUTES=rack=12")
	for handler, image := range map[string]string{"runc": world.Busybox, "wasm": world.Guest} {
		t.Run(handler, func(t *testing.T) {
			c := newCaller()
			ctx := c.in(t.Context())
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			_, err := m.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: image, RuntimeHandler: handler}})
			must(err)
			config := m.podConfig("traced")
			pod, err := m.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
			must(err)
			m.Ran(pod.GetPodSandboxId())
			program := sh("sleep 1000")
			if handler == "wasm" {
				program = containerConfig(image, "idle")
			}
			id, _, err := m.Create(ctx, pod.GetPodSandboxId(), config, program)
			must(err)
			_, err = m.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: id})
			must(err)
			_, err = m.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: id})
			must(err)
			_, err = m.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: pod.GetPodSandboxId()})
			must(err)

			const pull, run, create, start, stop, remove = imageService + "PullImage", runtimeService + "RunPodSandbox", runtimeService + "CreateContainer",
				runtimeService + "StartContainer", runtimeService + "StopContainer", runtimeService + "RemovePodSandbox"
			want := []string{
				pull, pull + " > pull image", pull + " > pull image > resolve reference", pull + " > pull image > fetch from registry",
				run, run + " > set up network", run + " > start shim",
				create, create + " > prepare root filesystem",
				start, start + " > sunaba.shim.v1.Extra/Launch",
				stop, stop + " > " + taskService + "Kill",
				remove, remove + " > tear down network", remove + " > stop shim", remove + " > stop shim > " + taskService + "Delete",
			}
			if handler == "runc" {
				want = append(want, pull+" > pull image > unpack layer", pull+" > pull image > commit layers")
			} else {
				want = append(want, pull+" > pull image > compile module")
			}
			tree := c.tree(t, from, want...)

			page, err := os.ReadFile("../../docs/tracing.md")
			must(err)
			for _, s := range from.Spans() {
				if !strings.Contains(s.Name, "/") && !bytes.Contains(page, []byte("`"+s.Name+"`")) {
					t.Errorf("docs/tracing.md does not have the span %q", s.Name)
				}
			}
			requests := tree[c.span]
			if len(requests) != 6 {
				t.Errorf("%d requests", len(requests))
			}
			for _, s := range requests {
				service, method, _ := strings.Cut(s.Name, "/")
				if s.Failed || s.Kind != traces.Span_SPAN_KIND_SERVER || s.Attributes["rpc.system"] != "grpc" || s.Attributes["rpc.service"] != service ||
					s.Attributes["rpc.method"] != method || s.Attributes["rpc.grpc.status_code"] != "0" || s.Attributes["sunaba.handler"] != handler {
					t.Errorf("%+v", s)
				}
				if s.Resource["service.name"] != "sunaba" || s.Resource["rack"] != "12" {
					t.Errorf("resource %v", s.Resource)
				}
				if s.Name == pull {
					if s.Attributes["container.image.name"] != image {
						t.Errorf("%+v", s)
					}
					continue
				}
				if s.Attributes["k8s.pod.name"] != config.GetMetadata().GetName() || s.Attributes["k8s.namespace.name"] != "scenario" || s.Attributes["sunaba.sandbox.id"] != pod.GetPodSandboxId() {
					t.Errorf("%+v", s)
				}
				if strings.HasSuffix(s.Name, "Container") && (s.Attributes["k8s.container.name"] != program.GetMetadata().GetName() || s.Attributes["container.id"] != id) {
					t.Errorf("%+v", s)
				}
				for _, step := range tree[s.ID] {
					if step.Start.Before(s.Start.Add(-time.Millisecond)) || step.End.Before(step.Start) {
						t.Errorf("%s: %+v", s.Name, step)
					}
				}
			}
			whole, _ := tree.Find("pull image")
			fetched, _ := tree.Find("fetch from registry")
			if whole.Attributes["sunaba.bytes"] == "0" || fetched.Attributes["sunaba.bytes"] == "0" || !strings.HasPrefix(fetched.Attributes["oci.digest"], "sha256:") {
				t.Errorf("%v, %v", whole.Attributes, fetched.Attributes)
			}
			started, _ := tree.Find(start)
			launch, _ := tree.Find("sunaba.shim.v1.Extra/Launch")
			if !slices.Equal(started.Events, []string{"process started"}) || started.Attributes["process.pid"] == "" || launch.Attributes["rpc.system"] != "ttrpc" || launch.Kind != traces.Span_SPAN_KIND_CLIENT {
				t.Errorf("%+v, %+v", started, launch)
			}
		})
	}
}

// A request that fails is a span with the error as its status, and so is the step that failed.
func TestTracesOfFailures(t *testing.T) {
	m, from := startTraced(t, stage.Handlers)
	m.pull(world.Busybox)
	p := m.run("runc")
	program := containerConfig(world.Busybox)
	program.Command = []string{"/bin/sh"}
	program.Mounts = []*runtime.Mount{{HostPath: "/dev/null", ContainerPath: "/bin"}}
	broken := p.create(program)
	c := newCaller()
	ctx := c.in(t.Context())
	_, pullErr := m.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: world.Registry.Host + "/none:v1"}})
	_, startErr := m.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: broken.id})
	_, goneErr := m.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: "none"})
	if pullErr == nil || startErr == nil || goneErr == nil {
		t.Fatalf("%v, %v, %v", pullErr, startErr, goneErr)
	}
	const launch = runtimeService + "StartContainer > sunaba.shim.v1.Extra/Launch"
	tree := c.tree(t, from, launch, imageService+"PullImage > pull image > resolve reference", runtimeService+"ContainerStatus")
	for name, code := range map[string]string{
		imageService + "PullImage": "5", "pull image": "", "resolve reference": "", runtimeService + "StartContainer": "2", "sunaba.shim.v1.Extra/Launch": "", runtimeService + "ContainerStatus": "5",
	} {
		s, _ := tree.Find(name)
		if !s.Failed || s.Error == "" || s.Attributes["rpc.grpc.status_code"] != code {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// What is secret in a request, or may be, is in no span.
func TestTracesHaveNoSecrets(t *testing.T) {
	m, from := startTraced(t, stage.Handlers)
	m.pull(world.Busybox)
	const secret = "hunter2"
	c := newCaller()
	ctx := c.in(t.Context())
	for _, ref := range []string{world.Registry.Host + "/none:v1", "https://u:" + secret + "@h/x?sig=" + secret} {
		if _, err := m.PullImage(ctx, &runtime.PullImageRequest{
			Image: &runtime.ImageSpec{Image: ref, Annotations: map[string]string{"a": secret}}, Auth: &runtime.AuthConfig{Username: "user-" + secret, Password: secret},
		}); err == nil {
			t.Errorf("%s: no error", ref)
		}
	}
	config := m.podConfig("traced")
	config.Annotations = map[string]string{"example.com/token": secret}
	config.Labels = map[string]string{"token": secret}
	pod, err := m.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	m.Ran(pod.GetPodSandboxId())
	program := sh("exit 1; " + secret)
	program.Envs = []*runtime.KeyValue{{Key: "PASSWORD", Value: []byte(secret)}}
	program.Annotations = map[string]string{"example.com/token": secret}
	id, _, err := m.Create(ctx, pod.GetPodSandboxId(), config, program)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: pod.GetPodSandboxId()}); err != nil {
		t.Fatal(err)
	}
	c.tree(t, from, imageService+"PullImage", runtimeService+"StartContainer", runtimeService+"RemovePodSandbox > stop shim")
	if raw := from.Raw(); bytes.Contains(raw, []byte(secret)) {
		at := bytes.Index(raw, []byte(secret))
		t.Errorf("a secret is exported: %q", raw[max(at-200, 0):min(at+40, len(raw))])
	}
}

// What the agent does with a pod of a manifest is a trace of its own, for each of its actions.
func TestTracesOfAPodOfAManifest(t *testing.T) {
	folder := t.TempDir()
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: from-file}\nspec:\n  terminationGracePeriodSeconds: 0\n" +
		"  containers: [{name: app, image: '" + world.Busybox + "', command: [/bin/sleep, '1000'], env: [{name: PASSWORD, value: hunter2}]}]\n"
	if err := os.WriteFile(filepath.Join(folder, "pod.yaml"), []byte(pod), 0o644); err != nil {
		t.Fatal(err)
	}
	_, from := startTraced(t, fmt.Sprintf("[pods]\nmanifests = [%q]\nlogs = %q\n%s", folder, t.TempDir(), stage.Handlers))
	find := func(name string) (found collector.Span) {
		t.Helper()
		if !node.Within(node.Patience, func() bool {
			for _, s := range from.Spans() {
				if s.Name == name {
					found = s
					return true
				}
			}
			return false
		}) {
			t.Fatalf("no span %q", name)
		}
		return found
	}
	for name, steps := range map[string][]string{
		"pods/RunSandbox": {"start shim", "set up network"}, "pods/StartContainer": {"prepare root filesystem", "sunaba.shim.v1.Extra/Launch"},
	} {
		s := find(name)
		if s.Parent != "" || s.Failed || s.Attributes["k8s.pod.name"] != "from-file" || s.Attributes["k8s.namespace.name"] != "default" || s.Attributes["k8s.pod.uid"] == "" {
			t.Errorf("%+v", s)
		}
		names := from.Of(s.Trace).Below(s.ID)
		for _, step := range steps {
			if !slices.Contains(names, step) {
				t.Errorf("%s: no %q below it: %q", name, step, names)
			}
		}
	}
	if bytes.Contains(from.Raw(), []byte("hunter2")) {
		t.Error("a secret is exported")
	}
	if err := os.Remove(filepath.Join(folder, "pod.yaml")); err != nil {
		t.Fatal(err)
	}
	find("pods/RemoveSandbox")
	find("pods/TearDown")
}

// A collector that takes connections and does not answer delays no pod, and the server's end by
// some seconds at most. What is left when the server ends is exported then.
func TestTracesAtTheEndOfTheServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ends := func(m *machine) time.Duration {
		t.Helper()
		started := time.Now()
		if err := m.SignalDaemon(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		took := time.Since(started)
		if err := m.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		return took
	}
	m := startTracedTo(t, "http://"+l.Addr().String(), stage.Handlers)
	m.pull(world.Busybox)
	p := m.run("runc")
	began := time.Now()
	p.begin(sh("exit 0")).expectEnd(0, "Completed")
	if took := time.Since(began); took > node.Slow(5*time.Second) {
		t.Errorf("a container took %v", took)
	}
	if took := ends(m); took > node.Slow(8*time.Second) {
		t.Errorf("the server's end took %v", took)
	}

	m, from := startTraced(t, stage.Handlers, "OTEL_BSP_SCHEDULE_DELAY=3600000")
	c := newCaller()
	if _, err := m.Version(c.in(t.Context()), &runtime.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	if n := len(from.Spans()); n > 0 {
		t.Errorf("%d spans before the end", n)
	}
	ends(m)
	if _, found := from.Of(c.trace).Find(runtimeService + "Version"); !found {
		t.Errorf("spans %+v", from.Spans())
	}
}

// Without the variables nobody is asked, and a caller's headers change nothing.
func TestTracesAreOff(t *testing.T) {
	c := collector.Start()
	defer c.Close()
	m := &machine{Machine: world.StartIn(t, []string{"OTEL_SERVICE_NAME=node", "OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_TRACES_EXPORTER=none"}, world.NodeDir(t), stage.Handlers), t: t}
	if _, err := m.Version(newCaller().in(t.Context()), &runtime.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := m.SignalDaemon(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if path, _ := c.Request(); path != "" || strings.Contains(m.DaemonLog(), "traces") {
		t.Errorf("asked for %q:\n%s", path, m.DaemonLog())
	}
}
