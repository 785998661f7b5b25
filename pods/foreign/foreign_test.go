package foreign

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// fake is a CRI server.
type fake struct {
	list   []*runtime.PodSandbox
	status map[string]*runtime.PodSandboxStatusResponse
	events chan *runtime.ContainerEventResponse
	ended  atomic.Int32
}

func (f *fake) ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	return &runtime.ListPodSandboxResponse{Items: f.list}, nil
}

func (f *fake) PodSandboxStatus(_ context.Context, r *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	if s := f.status[r.GetPodSandboxId()]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("sandbox: %w", errdefs.ErrNotFound)
}

func (f *fake) Events(ctx context.Context, each func(*runtime.ContainerEventResponse)) error {
	defer f.ended.Add(1)
	each(nil)
	for {
		select {
		case e := <-f.events:
			each(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fake) add(id, name string, created int64, ready bool, annotations map[string]string, containers ...*runtime.ContainerStatus) {
	meta := &runtime.PodSandboxMetadata{Namespace: "default", Name: name, Uid: "uid-" + name}
	state := runtime.PodSandboxState_SANDBOX_NOTREADY
	if ready {
		state = runtime.PodSandboxState_SANDBOX_READY
	}
	f.list = append(f.list, &runtime.PodSandbox{Id: id, Metadata: meta, State: state, CreatedAt: created, Annotations: annotations})
	f.status[id] = &runtime.PodSandboxStatusResponse{
		Status: &runtime.PodSandboxStatus{
			Id: id, Metadata: meta, State: state, CreatedAt: created, Annotations: annotations, RuntimeHandler: "wasm",
			Labels:  map[string]string{translate.PodUIDLabel: "uid-" + name, "app": name},
			Network: &runtime.PodSandboxNetworkStatus{Ip: "10.0.0.7", AdditionalIps: []*runtime.PodIP{{Ip: "fd00::7"}}},
		},
		ContainersStatuses: containers,
	}
}

func newFake() *fake {
	return &fake{status: map[string]*runtime.PodSandboxStatusResponse{}, events: make(chan *runtime.ContainerEventResponse)}
}

func container(name string, attempt uint32, state runtime.ContainerState, code int32) *runtime.ContainerStatus {
	reason := ""
	if state == runtime.ContainerState_CONTAINER_EXITED {
		reason = "Completed"
		if code != 0 {
			reason = "Error"
		}
	}
	return &runtime.ContainerStatus{
		Id: fmt.Sprintf("id-%s-%d", name, attempt), Metadata: &runtime.ContainerMetadata{Name: name, Attempt: attempt}, State: state, ExitCode: code,
		Reason: reason, Image: &runtime.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "img:1"}, CreatedAt: int64(attempt) + 1, StartedAt: 5, FinishedAt: 6,
	}
}

const (
	created = runtime.ContainerState_CONTAINER_CREATED
	running = runtime.ContainerState_CONTAINER_RUNNING
	exited  = runtime.ContainerState_CONTAINER_EXITED
)

func view(f *fake) *View {
	return New(Options{CRI: f, NodeName: "till-4", Class: func(h string) string { return "class-of-" + h }})
}

func TestPods(t *testing.T) {
	for _, c := range []struct {
		name       string
		ready      bool
		containers []*runtime.ContainerStatus
		phase      corev1.PodPhase
		columns    string // READY, STATUS, RESTARTS of `get pods`
	}{
		{"empty", true, nil, corev1.PodPending, "0/0 Pending 0"},
		{"created", true, []*runtime.ContainerStatus{container("a", 0, created, 0)}, corev1.PodPending, "0/1 ContainerCreating 0"},
		{"runs", true, []*runtime.ContainerStatus{container("a", 0, running, 0), container("b", 0, running, 0)}, corev1.PodRunning, "2/2 Running 0"},
		{"half", true, []*runtime.ContainerStatus{container("a", 0, running, 0), container("b", 0, exited, 3)}, corev1.PodRunning, "1/2 Error 0"},
		{"again", true, []*runtime.ContainerStatus{container("a", 0, exited, 3), container("a", 1, running, 0)}, corev1.PodRunning, "1/1 Running 1 (56y ago)"},
		{"over", false, []*runtime.ContainerStatus{container("a", 0, exited, 0)}, corev1.PodSucceeded, "0/1 Completed 0"},
		{"failed", false, []*runtime.ContainerStatus{container("a", 0, exited, 1)}, corev1.PodFailed, "0/1 Error 0"},
		{"stopped", false, nil, corev1.PodUnknown, "0/0 NotReady 0"},
		{"never", false, []*runtime.ContainerStatus{container("a", 0, created, 0)}, corev1.PodUnknown, "0/1 ContainerCreating 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake()
			f.add("s", c.name, 9, c.ready, nil, c.containers...)
			pods, err := view(f).Pods(t.Context())
			if err != nil || len(pods) != 1 {
				t.Fatalf("%v, %v", pods, err)
			}
			p := pods[0]
			ready, status, restarts := cycle.Columns(p, time.Unix(0, 6).Add(56*365*24*time.Hour+400*time.Hour))
			if got := strings.Join([]string{ready, status, restarts}, " "); got != c.columns || p.Status.Phase != c.phase {
				t.Errorf("phase %s, columns %q; want %s, %q", p.Status.Phase, got, c.phase, c.columns)
			}
			if p.Spec.NodeName != "till-4" || *p.Spec.RuntimeClassName != "class-of-wasm" || p.Labels["app"] != c.name || p.Labels[translate.PodUIDLabel] != "" {
				t.Errorf("pod %+v", p)
			}
			if c.ready && (p.Status.PodIP != "10.0.0.7" || len(p.Status.PodIPs) != 2) || !c.ready && p.Status.PodIP != "" {
				t.Errorf("addresses %v", p.Status.PodIPs)
			}
		})
	}
}

// Of sandboxes of one pod the newest counts, the agent's are not shown, and one that goes away
// meanwhile is left out.
func TestWhichPods(t *testing.T) {
	f := newFake()
	f.add("old", "b", 1, false, nil, container("a", 0, exited, 1))
	f.add("new", "b", 2, true, nil, container("a", 1, running, 0))
	f.add("x", "a", 3, true, map[string]string{translate.RunAnnotation: "1"})
	f.add("mine", "c", 4, true, map[string]string{translate.MarkAnnotation: "1"})
	f.list = append(f.list, &runtime.PodSandbox{Id: "gone", Metadata: &runtime.PodSandboxMetadata{Name: "gone"}})
	pods, err := view(f).Pods(t.Context())
	if err != nil || len(pods) != 2 || pods[0].Name != "a" || pods[1].Name != "b" || pods[1].Status.Phase != corev1.PodRunning {
		t.Errorf("%v, %v", pods, err)
	}
}

func TestMade(t *testing.T) {
	for annotation, want := range map[string]Maker{
		translate.MarkAnnotation: ByManifest, translate.RunAnnotation: ByRun, "kubernetes.io/config.source": ByKubelet, "other": ByClient,
	} {
		if got := Made(map[string]string{annotation: "x"}); got != want {
			t.Errorf("%s: %s, want %s", annotation, got, want)
		}
	}
}

// A change of another's pod is told once, one of the agent's is not, and Close ends the wait.
func TestOnChange(t *testing.T) {
	f := newFake()
	v := view(f)
	told := make(chan struct{}, 10)
	tell := func() { told <- struct{}{} }
	event := func(annotations map[string]string) *runtime.ContainerEventResponse {
		return &runtime.ContainerEventResponse{PodSandboxStatus: &runtime.PodSandboxStatus{Annotations: annotations}}
	}
	v.OnChange(tell)
	v.OnChange(tell) // waits already
	f.events <- event(map[string]string{translate.MarkAnnotation: "1"})
	select {
	case <-told:
		t.Error("a change of the agent's pod was told")
	case <-time.After(50 * time.Millisecond):
	}
	f.events <- event(nil)
	<-told
	v.OnChange(tell)
	v.Close()
	<-told
	v.OnChange(tell) // closed
	time.Sleep(20 * time.Millisecond)
	if len(told) > 0 || f.ended.Load() != 2 {
		t.Errorf("told %d times more, %d subscriptions ended", len(told), f.ended.Load())
	}
}

// The class of service is told of a kubelet's pods where their containers' adjustments leave no
// doubt, and of nobody else's.
func TestQOSClass(t *testing.T) {
	kubelet := map[string]string{configSource: "api"}
	for _, c := range []struct {
		annotations map[string]string
		adjustments []int64
		want        corev1.PodQOSClass
	}{
		{kubelet, []int64{1000}, corev1.PodQOSBestEffort},
		{kubelet, []int64{3, 999}, corev1.PodQOSBurstable},
		{kubelet, []int64{999}, corev1.PodQOSBurstable},
		{kubelet, []int64{-997}, ""}, // Guaranteed, or critical
		{kubelet, []int64{0}, ""},
		{kubelet, []int64{2}, ""},
		{kubelet, nil, ""},
		{nil, []int64{1000}, ""},
		{map[string]string{translate.RunAnnotation: "x"}, []int64{1000}, ""},
	} {
		f := &fake{status: map[string]*runtime.PodSandboxStatusResponse{}}
		var containers []*runtime.ContainerStatus
		for i, adjustment := range c.adjustments {
			containers = append(containers, &runtime.ContainerStatus{
				Metadata:  &runtime.ContainerMetadata{Name: fmt.Sprint("c", i)},
				Resources: &runtime.ContainerResources{Linux: &runtime.LinuxContainerResources{OomScoreAdj: adjustment}},
			})
		}
		f.add("s", "pod", 1, true, c.annotations, containers...)
		pods, err := New(Options{CRI: f, Class: func(string) string { return "" }}).Pods(t.Context())
		if err != nil || len(pods) != 1 || pods[0].Status.QOSClass != c.want {
			t.Errorf("%v: %+v, %v, want %q", c, pods, err, c.want)
		}
	}
}
