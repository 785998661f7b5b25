package podcmd

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/describe"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

// guestNotes are the notes about a pod's guests that have no other probes than TCP ones on ports
// that are open before they start. Without an answer of the CRI server there are none: what is
// known of the pod is shown all the same.
func guestNotes(ctx context.Context, c *api.Client, p *corev1.Pod) []string {
	asked := describe.TCPOnly(p)
	if len(asked) == 0 {
		return nil
	}
	info, err := c.Server(ctx)
	if err != nil {
		return nil
	}
	server, err := dial.Connect(ctx, info.CRISocket)
	if err != nil {
		return nil
	}
	defer server.Conn.Close()
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		open := openBefore(ctx, server, containerID(p, name))
		if slices.ContainsFunc(asked[name], func(port int) bool { return slices.Contains(open, port) }) {
			notes = append(notes, describe.EarlyProbe(name))
		}
	}
	return notes
}

// containerID is the id of a pod's container in the CRI server, "" before it has one.
func containerID(p *corev1.Pod, name string) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.Name == name {
			_, id, _ := strings.Cut(s.ContainerID, "://")
			return id
		}
	}
	return ""
}

// openBefore are the TCP ports of a container that are open before its program starts; none for one
// that is no guest.
func openBefore(ctx context.Context, server *dial.Client, id string) []int {
	if id == "" {
		return nil
	}
	resp, err := server.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil
	}
	var told struct {
		Spec struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(resp.GetInfo()["info"]), &told); err != nil {
		return nil
	}
	facts, err := annotation.Read(told.Spec.Annotations)
	if err != nil || facts.Program != annotation.Wasm {
		return nil
	}
	var ports []int
	for _, l := range facts.Listeners {
		ports = append(ports, int(l.Port))
	}
	return ports
}
