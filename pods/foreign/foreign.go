// Package foreign shows the pods of a CRI server that others made than the agent: a kubelet,
// crictl, `sunaba run`. It changes none of them.
package foreign

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
)

// CRI is what is asked of the server. Its status of a sandbox has those of the containers.
type CRI interface {
	ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error)
	PodSandboxStatus(context.Context, *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error)
	Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error
}

// Options configure a View.
type Options struct {
	CRI CRI
	// NodeName is the node's name, Class the RuntimeClass of a handler, "" if none is known.
	NodeName string
	Class    func(handler string) string
}

// View shows the pods that others made. Its methods may be called at the same time.
type View struct {
	o      Options
	mu     sync.Mutex
	armed  bool
	cancel context.CancelFunc
	closed bool
}

// New returns a view. The caller closes it.
func New(o Options) *View { return &View{o: o, cancel: func() {}} }

// Pods are the pods as far as a CRI server knows them, sorted by namespace and name. Init
// containers stand among the others, and no restart policy is known.
func (v *View) Pods(ctx context.Context) ([]*corev1.Pod, error) {
	list, err := v.o.CRI.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	newest := map[string]*runtime.PodSandbox{}
	for _, s := range list.GetItems() {
		m := s.GetMetadata()
		key := m.GetNamespace() + "/" + m.GetName() + "/" + m.GetUid()
		if old := newest[key]; ours(s.GetAnnotations()) || old != nil && old.GetCreatedAt() > s.GetCreatedAt() {
			continue
		}
		newest[key] = s
	}
	var pods []*corev1.Pod
	for _, s := range newest {
		status, err := v.o.CRI.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ask for pod %q: %w", s.GetMetadata().GetName(), err)
		}
		pods = append(pods, v.pod(status))
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return pods, nil
}

// ours says whether a sandbox is the agent's.
func ours(annotations map[string]string) bool {
	_, marked := annotations[translate.MarkAnnotation]
	return marked
}

// configSource is the annotation that a kubelet gives each pod.
const configSource = "kubernetes.io/config.source"

// Maker is who made a pod, in words.
type Maker string

// Makers.
const (
	ByManifest Maker = "a manifest"
	ByRun      Maker = `"sunaba run"`
	ByKubelet  Maker = "a kubelet"
	ByClient   Maker = "crictl or another client of the CRI"
)

// Made says who made a pod, by the annotations of its sandbox.
func Made(annotations map[string]string) Maker {
	if ours(annotations) {
		return ByManifest
	}
	if _, run := annotations[translate.RunAnnotation]; run {
		return ByRun
	}
	if annotations[configSource] != "" {
		return ByKubelet
	}
	return ByClient
}

// OnChange calls changed once, when one of the pods has changed since OnChange was called. A call
// while another one waits has no effect.
func (v *View) OnChange(changed func()) {
	v.mu.Lock()
	if v.armed || v.closed {
		v.mu.Unlock()
		return
	}
	v.armed = true
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	v.mu.Unlock()
	listening := make(chan struct{})
	go func() {
		defer cancel()
		told := false
		_ = v.o.CRI.Events(ctx, func(e *runtime.ContainerEventResponse) { // whatever ends it, somebody has to look
			switch {
			case e == nil && !told:
				told = true
				close(listening)
			case e != nil && !ours(e.GetPodSandboxStatus().GetAnnotations()):
				cancel()
			}
		})
		if !told {
			close(listening)
		}
		v.mu.Lock()
		v.armed = false
		v.mu.Unlock()
		changed()
	}()
	<-listening
}

// Close ends what OnChange waits for.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	v.cancel()
}
