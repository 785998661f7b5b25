package scenario

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Checkpoints are refused with what is wrong or missing, and nothing is written.
func TestCheckpointsAreRefused(t *testing.T) {
	m := start(t)
	m.pull(world.busybox)
	m.pull(world.guest)
	oci, wasm := m.run("runc"), m.run("wasm")
	running, ended := oci.begin(sh("sleep 1000")), oci.begin(sh("exit 0"))
	guest := wasm.begin(containerConfig(world.guest, "idle"))
	ended.wait()
	folder, full := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	location := filepath.Join(folder, "archive.tar")
	missing := []codes.Code{codes.FailedPrecondition, codes.Unimplemented} // criu, or all of it
	one := func(id, location string) error {
		_, err := m.CheckpointContainer(t.Context(), &runtime.CheckpointContainerRequest{ContainerId: id, Location: location})
		return err
	}
	deadline, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	pod := func(ctx context.Context, id, path string, options map[string]string, containers ...string) error {
		_, err := m.CheckpointPod(ctx, &runtime.CheckpointPodRequest{PodSandboxId: id, OutputPath: path, ContainerIds: containers, Options: options})
		return err
	}
	restore := func(change func(*runtime.RestorePodRequest)) error {
		r := &runtime.RestorePodRequest{
			CheckpointPath: folder, Config: m.podConfig("restored"), ContainerConfigs: []*runtime.ContainerConfig{sh("true")},
		}
		change(r)
		_, err := m.RestorePod(t.Context(), r)
		return err
	}
	for _, c := range []struct {
		what string
		err  error
		text string
		want []codes.Code
	}{
		{"container that is not there", one(strings.Repeat("0", 64), location), "", []codes.Code{codes.NotFound}},
		{"container that has ended", one(ended.id, location), "exited", missing[:1]},
		{"relative location", one(running.id, "archive.tar"), "archive.tar", []codes.Code{codes.InvalidArgument}},
		{"guest", one(guest.id, location), "WebAssembly", missing[:1]},
		{"container", one(running.id, location), "", missing},
		{"pod that is not there", pod(deadline, strings.Repeat("0", 64), folder, nil, running.id), "", []codes.Code{codes.NotFound}},
		{"pod without deadline", pod(t.Context(), oci.id, folder, nil, running.id), "deadline", []codes.Code{codes.InvalidArgument}},
		{"option", pod(deadline, oci.id, folder, map[string]string{"x": "y"}, running.id), `"x"`, []codes.Code{codes.InvalidArgument}},
		{"full folder", pod(deadline, oci.id, full, nil, running.id), "not empty", []codes.Code{codes.InvalidArgument}},
		{"ended container", pod(deadline, oci.id, folder, nil, running.id, ended.id), "", []codes.Code{codes.InvalidArgument}},
		{"no containers", pod(deadline, oci.id, folder, nil), "", []codes.Code{codes.InvalidArgument}},
		{"pod of guests", pod(deadline, wasm.id, folder, nil, guest.id), "WebAssembly", missing[:1]},
		{"pod", pod(deadline, oci.id, folder, nil, running.id), "", missing},
		{"restore by an unknown handler", restore(func(r *runtime.RestorePodRequest) { r.RuntimeHandler = "none" }), "none", []codes.Code{codes.InvalidArgument}},
		{"restore without containers", restore(func(r *runtime.RestorePodRequest) { r.ContainerConfigs = nil }), "", []codes.Code{codes.InvalidArgument}},
		{"restore two of a name", restore(func(r *runtime.RestorePodRequest) {
			r.ContainerConfigs = append(r.ContainerConfigs, r.ContainerConfigs[0])
		}), "twice", []codes.Code{codes.InvalidArgument}},
		{"restore from nowhere", restore(func(r *runtime.RestorePodRequest) { r.CheckpointPath = filepath.Join(folder, "none") }), "", []codes.Code{codes.InvalidArgument}},
		{"restore a guest", restore(func(r *runtime.RestorePodRequest) { r.RuntimeHandler = "wasm" }), "WebAssembly", missing[:1]},
		{"restore", restore(func(*runtime.RestorePodRequest) {}), "", missing},
	} {
		if !slices.Contains(c.want, grpcstatus.Code(c.err)) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.what, c.err, c.want, c.text)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
	for _, c := range []*container{running, guest} {
		if got := c.status().GetState(); got != runtime.ContainerState_CONTAINER_RUNNING {
			t.Errorf("a container is %v", got)
		}
	}
}

// The node's range of pod addresses is taken note of, whatever it is.
func TestUpdateRuntimeConfig(t *testing.T) {
	m := start(t)
	for _, config := range []*runtime.RuntimeConfig{
		nil, {}, {NetworkConfig: &runtime.NetworkConfig{}},
		{NetworkConfig: &runtime.NetworkConfig{PodCidr: "10.244.1.0/24"}},
		{NetworkConfig: &runtime.NetworkConfig{PodCidr: "10.244.1.0/24,fd00:244:1::/64"}},
	} {
		if _, err := m.UpdateRuntimeConfig(t.Context(), &runtime.UpdateRuntimeConfigRequest{RuntimeConfig: config}); err != nil {
			t.Errorf("%v: %v", config, err)
		}
	}
	m.pull(world.busybox)
	if m.run("runc").ip() == "" {
		t.Error("no address after the update")
	}
}
