package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/containerd/platforms"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// runtimeName is the "<name>://" before a container's id in Kubernetes.
const runtimeName = "sunaba"

// nodeAPI answers the requests about the runtime itself.
type nodeAPI struct {
	o       Options
	network atomic.Value // string: why the network was not ready when it was last asked, "" if it was
}

func (a *nodeAPI) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return &runtime.VersionResponse{Version: "0.1.0", RuntimeName: runtimeName, RuntimeVersion: a.o.Version, RuntimeApiVersion: "v1"}, nil
}

func (a *nodeAPI) Status(ctx context.Context, r *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	network := &runtime.RuntimeCondition{Type: runtime.NetworkReady, Status: true}
	if err := a.o.Network.Status(ctx); err != nil {
		network.Status, network.Reason, network.Message = false, "NetworkNotReady", errtext.Of(err)
	}
	a.noteNetwork(ctx, network.GetMessage())
	resp := &runtime.StatusResponse{
		Status: &runtime.RuntimeStatus{Conditions: []*runtime.RuntimeCondition{
			a.runtimeReady(), network,
		}},
		RuntimeHandlers: a.handlers(),
		Features:        a.nodeFeatures(),
	}
	if r.GetVerbose() {
		info, err := a.info()
		if err != nil {
			return nil, err
		}
		resp.Info = info
	}
	return resp, nil
}

// noteNetwork logs why the network is not ready, once: kubelets ask every few seconds.
func (a *nodeAPI) noteNetwork(ctx context.Context, problem string) {
	before, _ := a.network.Swap(problem).(string)
	switch {
	case problem == before:
	case problem == "":
		a.o.Logger.InfoContext(ctx, "network is ready")
	default:
		a.o.Logger.WarnContext(ctx, "network check failed", "error", problem)
	}
}

// runtimeReady tells of the handlers' OCI runtimes. Without that of the default handler, pods that
// name none cannot run; without another one's, its own pods cannot.
func (a *nodeAPI) runtimeReady() *runtime.RuntimeCondition {
	ready := &runtime.RuntimeCondition{Type: runtime.RuntimeReady, Status: true}
	var problems []string
	for _, h := range a.o.Handlers.All() {
		r := a.o.Runtime(h.Binary)
		if r.Problem == "" {
			continue
		}
		problems = append(problems, r.Text(h.Name))
		ready.Reason = cmp.Or(ready.Reason, "HandlersNotReady")
		if r.Missing && h.Default && h.Type == runtimeclass.OCI {
			ready.Status, ready.Reason = false, "OCIRuntimeMissing"
		}
	}
	ready.Message = strings.Join(problems, "; ")
	return ready
}

// handlers are all handlers by name, and the default once more as "".
func (a *nodeAPI) handlers() []*runtime.RuntimeHandler {
	out := []*runtime.RuntimeHandler{{Name: "", Features: a.features(a.o.Handlers.Default())}}
	for _, h := range a.o.Handlers.All() {
		out = append(out, &runtime.RuntimeHandler{Name: h.Name, Features: a.features(h)})
	}
	return out
}

// nodeFeatures are those of all handlers together. A pod with users of its own in the host's
// network needs recursive read-only mounts too, for its /sys.
func (a *nodeAPI) nodeFeatures() *runtime.RuntimeFeatures {
	hostNetwork := a.o.Host.IDMappedMounts
	for _, h := range a.o.Handlers.All() {
		hostNetwork = hostNetwork && a.features(h).GetRecursiveReadOnlyMounts()
	}
	return &runtime.RuntimeFeatures{SupplementalGroupsPolicy: true, MountOptions: true, UserNamespacesHostNetwork: hostNetwork}
}

// features of a handler: what the kernel has, and the handler's OCI runtime. Without one, a
// handler of type wasm runs guests only, and they need none.
func (a *nodeAPI) features(h runtimeclass.Handler) *runtime.RuntimeHandlerFeatures {
	oci := a.o.Runtime(h.Binary)
	return &runtime.RuntimeHandlerFeatures{
		RecursiveReadOnlyMounts: a.o.Host.RecursiveReadOnly && (oci.Features.RecursiveReadOnly || oci.Missing && h.Type == runtimeclass.WASM),
		UserNamespaces:          a.o.Host.IDMappedMounts,
	}
}

func (a *nodeAPI) info() (map[string]string, error) {
	type handler struct {
		Type      string   `json:"type"`
		Binary    string   `json:"binary"`
		Path      string   `json:"path,omitempty"`
		Version   string   `json:"version,omitempty"`
		Problem   string   `json:"problem,omitempty"`
		ShimScope string   `json:"shimScope"`
		Platforms []string `json:"platforms"`
		Default   bool     `json:"default"`
	}
	handlers := map[string]handler{}
	for _, h := range a.o.Handlers.All() {
		oci := a.o.Runtime(h.Binary)
		out := handler{
			Type: string(h.Type), Binary: h.Binary, Path: oci.Path, Version: oci.Version, Problem: oci.Text(h.Name),
			ShimScope: string(h.ShimScope), Default: h.Default,
		}
		for _, p := range h.Platforms {
			out.Platforms = append(out.Platforms, platforms.FormatAll(p))
		}
		handlers[h.Name] = out
	}
	config, err := json.Marshal(map[string]any{
		"stateDir": a.o.State, "rootDir": a.o.Root, "cgroupDriver": string(a.o.Cgroups.Driver),
		"cgroupUnified": a.o.Cgroups.Unified != "", "handlers": handlers,
	})
	if err != nil {
		return nil, fmt.Errorf("describe configuration: %w", err)
	}
	return map[string]string{"config": string(config)}, nil
}

func (a *nodeAPI) RuntimeConfig(context.Context, *runtime.RuntimeConfigRequest) (*runtime.RuntimeConfigResponse, error) {
	driver := runtime.CgroupDriver_CGROUPFS
	if a.o.Cgroups.Driver == cgroup.Systemd {
		driver = runtime.CgroupDriver_SYSTEMD
	}
	return &runtime.RuntimeConfigResponse{Linux: &runtime.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig is told the node's pod range, one or two in a list with commas. The embedded
// network uses it, CNI plugins get theirs from their own configuration.
func (a *nodeAPI) UpdateRuntimeConfig(_ context.Context, r *runtime.UpdateRuntimeConfigRequest) (*runtime.UpdateRuntimeConfigResponse, error) {
	var ranges []string
	for text := range strings.SplitSeq(r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr(), ",") {
		if text = strings.TrimSpace(text); text != "" {
			ranges = append(ranges, text)
		}
	}
	if ranged, ok := a.o.Network.(network.Ranged); ok && len(ranges) > 0 {
		if err := ranged.UseRange(ranges); err != nil {
			return nil, fmt.Errorf("use pod range %q: %w", ranges, err)
		}
	}
	return &runtime.UpdateRuntimeConfigResponse{}, nil
}
