package statuspage

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/page"
)

// agent has the pods of a node.
type agent struct {
	api.Agent
	node metav1.Object
}

func (a agent) Manifests() []api.Manifest {
	return []api.Manifest{{File: "a.yaml", Status: api.ManifestLoaded}, {File: "b.yaml", Status: api.ManifestRefused, Message: "line 3: no"}}
}

func (a agent) Objects(kind string) []metav1.Object {
	switch {
	case kind == manifest.KindRuntimeClass:
		return []metav1.Object{&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Handler: "wasm"}}
	case kind == api.KindNode && a.node != nil:
		return []metav1.Object{a.node}
	}
	return nil
}

func (a agent) Pods() []*corev1.Pod {
	class := "small"
	running := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", CreationTimestamp: metav1.NewTime(time.UnixMilli(5000)), Annotations: map[string]string{"secret": "x"}},
		Spec:       corev1.PodSpec{RuntimeClassName: &class, Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "x"}}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Image: "img:1", Ready: true, RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		},
	}
	failing := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web2", UID: "u2"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodPending,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}},
		},
	}
	later := "later"
	pending := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web3", UID: "u3"}, Spec: corev1.PodSpec{RuntimeClassName: &later}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	return []*corev1.Pod{running, failing, pending}
}

func (a agent) Events() []*corev1.Event {
	event := func(at int64, kind string) *corev1.Event {
		return &corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"}, Type: kind, Reason: "R", Message: "M", Count: 3, LastTimestamp: metav1.NewTime(time.Unix(at, 0)),
		}
	}
	return []*corev1.Event{event(1, "Normal"), event(3, "Warning"), event(2, "Normal")}
}

// cri is a server with one sandbox.
type cri struct {
	cpu    uint64
	broken error
}

func (c *cri) Status(context.Context, *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	return &runtime.StatusResponse{
		Status: &runtime.RuntimeStatus{Conditions: []*runtime.RuntimeCondition{{Type: "NetworkReady", Message: "no bridge"}}},
		Info:   map[string]string{"config": `{"handlers":{"wasm":{"type":"wasm","version":"runc 1","problem":"p"},"runc":{"default":true}}}`},
	}, c.broken
}

func (c *cri) ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	return &runtime.ImageFsInfoResponse{ImageFilesystems: []*runtime.FilesystemUsage{{UsedBytes: &runtime.UInt64Value{Value: 77}}}}, nil
}

var meta = &runtime.PodSandboxMetadata{Namespace: "shop", Name: "web", Uid: "u1"}

func (c *cri) ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	return &runtime.ListPodSandboxResponse{Items: []*runtime.PodSandbox{{Id: "s1", Metadata: meta}, {Id: "gone"}}}, c.broken
}

func (c *cri) PodSandboxStatus(_ context.Context, r *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	if r.GetPodSandboxId() == "gone" {
		return nil, errdefs.ErrNotFound
	}
	return &runtime.PodSandboxStatusResponse{Info: map[string]string{
		"info": `{"runtimeHandler":"wasm","overhead":{"declared":{"memoryBytes":100,"cpuMillis":5},"measured":{"memoryBytes":150}}}`,
	}}, nil
}

func (c *cri) ListPodSandboxStats(context.Context, *runtime.ListPodSandboxStatsRequest) (*runtime.ListPodSandboxStatsResponse, error) {
	c.cpu += 500
	return &runtime.ListPodSandboxStatsResponse{Stats: []*runtime.PodSandboxStats{{
		Attributes: &runtime.PodSandboxAttributes{Id: "s1"}, Linux: &runtime.LinuxPodSandboxStats{
			Cpu:    &runtime.CpuUsage{Timestamp: int64(c.cpu * 2), UsageCoreNanoSeconds: &runtime.UInt64Value{Value: c.cpu}},
			Memory: &runtime.MemoryUsage{WorkingSetBytes: &runtime.UInt64Value{Value: 1000}},
		},
	}}}, nil
}

func (c *cri) ListContainers(context.Context, *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	return &runtime.ListContainersResponse{}, nil
}

func reader(c *cri, node metav1.Object) *Reader {
	return New(Options{Agent: agent{node: node}, Manifests: true, CRI: c, Images: func(context.Context) ([]images.Image, error) {
		image := func(id, arch string, handlers ...string) images.Image {
			return images.Image{ID: id, RepoTags: []string{"r/app:1"}, Platform: ocispec.Platform{OS: "linux", Architecture: arch}, Handlers: handlers, Size: 9}
		}
		return []images.Image{image("a", "amd64", "runc", "wasm"), image("b", "arm64"), {ID: "c", RepoDigests: []string{"r/other@sha256:1"}}}, c.broken
	}})
}

func TestRead(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "till-4"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: "MemoryPressure", Status: corev1.ConditionTrue, Message: "too little"}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "fine"},
	}}}
	r := reader(&cri{}, node)
	first := r.Read(t.Context())
	if u := first.Pods[0].Use; u == nil || u.Cores != -1 {
		t.Errorf("CPU of a first sample: %+v", u)
	}
	s := r.Read(t.Context())
	if !reflect.DeepEqual(s.Problems, []string{"manifest b.yaml is refused: line 3: no"}) {
		t.Errorf("problems %q", s.Problems)
	}
	want := []page.Condition{
		{Type: "Ready", Status: "yes", Good: true}, {Type: "MemoryPressure", Status: "yes", Message: "too little"}, {Type: "NetworkReady", Status: "no", Message: "no bridge"},
	}
	if n := s.Node; n.Name != "till-4" || !n.Manifests || n.ImageBytes != 77 || !reflect.DeepEqual(n.Conditions, want) ||
		!reflect.DeepEqual(n.Handlers, []page.Handler{{Name: "runc", Default: true}, {Name: "wasm", Version: "runc 1", Problem: "p"}}) {
		t.Errorf("node %+v", n)
	}
	web := page.Pod{
		ID: "shop/web/u1", Namespace: "shop", Name: "web", Handler: "wasm", Ready: "1/1", Status: "Running", Tone: page.Fine, Restarts: "2", Created: 5000,
		Use:        &page.Use{Cores: 0.5, MemoryBytes: 1150, DeclaredBytes: 100, DeclaredMillis: 5, MeasuredBytes: 150, Verdict: "over"},
		Containers: []page.Container{{Name: "c", Image: "img:1", State: "Running", Restarts: 2}},
	}
	if got := s.Pods[0]; !reflect.DeepEqual(got, web) {
		t.Errorf("pod %+v %+v, want %+v", got, got.Use, web)
	}
	if got := s.Pods[1]; got.Tone != page.Failing || got.Use != nil || got.Status != "ImagePullBackOff" || got.Containers[0].State != "ImagePullBackOff" || got.Handler != "runc" {
		t.Errorf("pod %+v", got)
	}
	if got := s.Pods[2]; got.Tone != page.Waiting || got.Handler != "wasm" {
		t.Errorf("pod %+v", got)
	}
	if len(s.Images) != 2 || len(s.Images[0].Variants) != 2 || s.Images[0].Name != "r/app:1" || s.Images[0].Variants[0].Platform != "linux/amd64" ||
		s.Images[0].Variants[0].Handlers != "runc, wasm" || s.Images[1].Name != "r/other@sha256:1" {
		t.Errorf("images %+v", s.Images)
	}
	if e := s.Events; len(e) != 3 || e[0].At != 3000 || !e[0].Warning || e[2].At != 1000 || e[0].Object != "shop pod/web" || e[0].Count != 3 {
		t.Errorf("events %+v", e)
	}
}

// What cannot be found out is said, and the rest is shown.
func TestReadProblems(t *testing.T) {
	s := reader(&cri{broken: errors.New("gone")}, nil).Read(t.Context())
	all := strings.Join(s.Problems, "\n")
	for _, want := range []string{"ask for the node's status: gone", "list pods: gone", "list images: gone"} {
		if !strings.Contains(all, want) {
			t.Errorf("problems %q lack %q", all, want)
		}
	}
	if len(s.Pods) != 3 || len(s.Events) != 3 || s.Node.Name == "" {
		t.Errorf("%d pods, %d events of node %q", len(s.Pods), len(s.Events), s.Node.Name)
	}
}
