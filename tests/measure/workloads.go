package measure

import (
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// Workloads pushes and pulls what is measured: busybox under runc, and under wasm the C guest whose
// source is at guestSource.
func Workloads(ctx context.Context, registry *oci.Registry, n *node.Node, guestSource string) ([]Workload, error) {
	guest, err := oci.PackedC(ctx, guestSource)
	if err != nil {
		return nil, err
	}
	busybox, err := oci.Busybox(oci.Host(), v1.Config{})
	if err != nil {
		return nil, err
	}
	workloads := []Workload{
		{Handler: "runc", Command: []string{"/bin/sleep", "1000"}},
		{Handler: "wasm", Args: []string{"idle"}},
	}
	for i, image := range []v1.Image{busybox, guest} {
		ref, err := registry.Push(ctx, "measure/"+workloads[i].Handler+":1", image)
		if err != nil {
			return nil, err
		}
		workloads[i].Image = ref
		if _, err := n.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}}); err != nil {
			return nil, fmt.Errorf("pull %q: %w", ref, err)
		}
	}
	return workloads, nil
}
