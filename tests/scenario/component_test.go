package scenario

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
	"github.com/sunaba-project/sunaba/tests/stage"
)

// threeKinds is the reference of an index of a Linux program, a module and a component.
func threeKinds(t *testing.T) string {
	t.Helper()
	module, err := oci.BuildC(t.Context(), "../../examples/c/guest.c")
	if err != nil {
		t.Fatal(err)
	}
	config := v1.Config{Entrypoint: []string{"/bin/program"}, Env: []string{"KIND=image"}}
	linux, err := oci.Busybox(oci.LinuxAMD64, v1.Config{Entrypoint: []string{"/bin/busybox"}, Env: config.Env})
	if err != nil {
		t.Fatal(err)
	}
	variants := []oci.Variant{{Platform: oci.LinuxAMD64, Image: linux}}
	for platform, program := range map[*v1.Platform][]byte{&oci.Wasip1: module, &oci.Wasip2: oci.Component()} {
		layer, err := oci.Layer(oci.Dir("bin", 0o755), oci.Program("bin/program", program))
		if err != nil {
			t.Fatal(err)
		}
		image, err := oci.Image(*platform, config, layer)
		if err != nil {
			t.Fatal(err)
		}
		variants = append(variants, oci.Variant{Platform: *platform, Image: image})
	}
	index, err := oci.Index(variants...)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := world.Registry.PushIndex(t.Context(), "kinds:v1", index)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// One reference is a Linux program, a module or a component, by the platforms of the pod's handler. A
// pod has containers of all three.
func TestThreeKindsOfAnIndex(t *testing.T) {
	ref := threeKinds(t)
	m := startWith(t, world.NodeDir(t), stage.Handlers+"\n[handlers.component]\ntype = \"wasm\"\nplatforms = [\"wasip2/wasm\", \"wasip1/wasm\", \"host\"]\n")
	m.pull(ref)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for handler, args := range map[string][]string{
		"runc":      {"echo", "linux"},
		"wasm":      {"env", "KIND"},           // of examples/c
		"component": {"say", "of", "WASI 0.2"}, // of oci.Component
	} {
		c := m.run(handler).begin(containerConfig(ref, args...))
		c.expectEnd(0, "Completed")
		if want := map[string]string{"runc": "linux\n", "wasm": "image\n", "component": "of WASI 0.2\n"}[handler]; c.text() != want {
			t.Errorf("under %s: %q, want %q", handler, c.text(), want)
		}
	}
	p := m.run("component")
	server := p.begin(containerConfig(ref, "serve"))
	server.says("listening")
	p.begin(sh("wget -q -O - http://127.0.0.1:8080/ && sleep 1000")).says("ok")
	guest := containerConfig(world.Guest, "exit", "4")
	p.begin(guest).expectEnd(4, "Error")
	if got := m.Get("http://" + p.ip() + ":8080/"); got != "ok\n" {
		t.Errorf("answer %q", got)
	}
	if took := server.stop(120); took > node.Patience {
		t.Errorf("the stop took %v", took)
	}
	server.expectEnd(0, "Completed")
	server.says("stopped")
}

// A component ends as a module does when it is stopped, when memory runs out and by its mounts, and
// is not checkpointed either.
func TestComponentLivesAsAModule(t *testing.T) {
	m := start(t)
	m.pull(world.Component)
	p := m.run("wasm")

	input := containerConfig(world.Component, "cat", "6")
	input.Stdin = true
	reader := p.begin(input)
	if took := reader.stop(120); took > node.Patience {
		t.Errorf("a reader took %v", took)
	}
	reader.expectEnd(6, "Error")

	deaf := p.begin(containerConfig(world.Component, "sleep"))
	deaf.says("ready")
	if _, err := m.CheckpointContainer(t.Context(), &runtime.CheckpointContainerRequest{ContainerId: deaf.id, Location: filepath.Join(t.TempDir(), "archive.tar")}); grpcstatus.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "WebAssembly") {
		t.Errorf("a checkpoint: %v", err)
	}
	if took := deaf.stop(120); took > node.Patience {
		t.Errorf("a component that cannot hear took %v", took)
	}
	deaf.expectEnd(143, "Error")

	patient := containerConfig(world.Component, "wait", "udp")
	patient.Annotations = map[string]string{"io.sunaba.stop-wait": "true"}
	waiting := p.begin(patient)
	waiting.says("waiting")
	if took := waiting.stop(1); took < 900*time.Millisecond || took > node.Slow(node.Patience) {
		t.Errorf("a component that waits its grace out took %v", took)
	}
	waiting.expectEnd(137, "Error")

	for what, want := range map[string]string{"take": "OOMKilled", "fill": "Error"} {
		config := containerConfig(world.Component, what, "200")
		config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}
		p.begin(config).expectEnd(map[string]int32{"take": 134, "fill": 3}[what], want)
	}

	config := containerConfig(world.Component, "sleep")
	config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
	resized := p.begin(config)
	resized.says("ready")
	if _, err := m.UpdateContainerResources(t.Context(), &runtime.UpdateContainerResourcesRequest{
		ContainerId: resized.id, Linux: &runtime.LinuxContainerResources{MemoryLimitInBytes: 96 << 20},
	}); err != nil {
		t.Error(err)
	}
	if got := resized.status().GetResources().GetLinux().GetMemoryLimitInBytes(); got != 96<<20 {
		t.Errorf("the limit is %d", got)
	}
	resized.stop(0)

	reached := p.begin(containerConfig(world.Component, "udp"))
	reached.says("listening")
	p.begin(containerConfig(world.Component, "send", "localhost", "8080", "datagram")).says("datagram")
}
