package servertrace

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/trace"
)

// Where nobody asked for traces, no request costs anything for them.
func TestRequestsWithoutTracesAllocateNothing(t *testing.T) {
	var r Requests
	ctx, failure := context.Background(), errors.New("broken")
	req, resp := &runtime.StartContainerRequest{ContainerId: "c"}, &runtime.CreateContainerResponse{ContainerId: "c"}
	if n := testing.AllocsPerRun(1000, func() {
		inner, span := r.Start(ctx, "/runtime.v1.RuntimeService/StartContainer")
		r.Describe(span, req)
		stream := Stream(inner, span, nil)
		End(span, resp, failure)
		if inner != ctx || span.On() || stream != nil {
			t.Error("something is recorded")
		}
	}); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// page is a tracer with one span.
type page struct {
	name, parent string
	texts        map[string]string
	code         int64
	err          error
}

func (p *page) Root(ctx context.Context, name string, _ trace.Kind, header func(string) string) (context.Context, trace.Recorder) {
	p.name, p.parent = name, header("traceparent")
	return ctx, p
}

func (p *page) Child(ctx context.Context, _ string, _ trace.Kind) (context.Context, trace.Recorder) {
	return ctx, p
}
func (p *page) Text(key, value string)         { p.texts[key] = value }
func (p *page) Number(_ string, value int64)   { p.code = value }
func (p *page) Event(name string, _ time.Time) {}
func (p *page) End(err error)                  { p.err = err }

type pods map[string]state.Sandbox

func (p pods) Get(id string) (state.Sandbox, error) {
	if sb, ok := p[id]; ok {
		return sb, nil
	}
	return state.Sandbox{}, errdefs.ErrNotFound
}

type containers map[string]state.Container

func (c containers) Get(id string) (state.Container, error) {
	if rec, ok := c[id]; ok {
		return rec, nil
	}
	return state.Container{}, errdefs.ErrNotFound
}

// A span has the names of what its request is about, and nothing else of it.
func TestDescriptions(t *testing.T) {
	md := &runtime.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u1"}
	config := &runtime.ContainerConfig{
		Metadata: &runtime.ContainerMetadata{Name: "app"}, Image: &runtime.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "app:v1"},
		Envs: []*runtime.KeyValue{{Key: "PASSWORD", Value: []byte("secret")}}, Annotations: map[string]string{"a": "secret"},
	}
	sandbox := &runtime.PodSandboxConfig{Metadata: md, Annotations: map[string]string{"a": "secret"}, Labels: map[string]string{"l": "secret"}}
	r := Requests{
		Sandboxes:  pods{"s1": {ID: "s1", HandlerName: "wasm", Config: state.PodConfig{Value: sandbox}}},
		Containers: containers{"c1": {ID: "c1", SandboxID: "s1", Config: state.ContainerConfig{Value: config}}},
	}
	pod := map[string]string{trace.PodName: "web", trace.PodNamespace: "shop", trace.PodUID: "u1", trace.SandboxID: "s1", trace.Handler: "wasm"}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(pod)
		maps.Copy(all, more)
		return all
	}
	for _, c := range []struct {
		request, answer any
		want            map[string]string
	}{
		{&runtime.RunPodSandboxRequest{Config: sandbox, RuntimeHandler: "wasm"}, &runtime.RunPodSandboxResponse{PodSandboxId: "s1"}, pod},
		{&runtime.StopPodSandboxRequest{PodSandboxId: "s1"}, nil, pod},
		{&runtime.StopPodSandboxRequest{PodSandboxId: "s2"}, nil, map[string]string{trace.SandboxID: "s2"}},
		{
			&runtime.CreateContainerRequest{PodSandboxId: "s1", Config: config}, &runtime.CreateContainerResponse{ContainerId: "c1"},
			with(map[string]string{trace.ContainerName: "app", trace.ImageName: "app:v1", trace.ContainerID: "c1"}),
		},
		{&runtime.ExecSyncRequest{ContainerId: "c1", Cmd: []string{"secret"}}, nil, with(map[string]string{trace.ContainerName: "app", trace.ImageName: "app:v1", trace.ContainerID: "c1"})},
		{&runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: "app:v1", RuntimeHandler: "runc"}, Auth: &runtime.AuthConfig{Password: "secret"}}, nil, map[string]string{trace.ImageName: "app:v1", trace.Handler: "runc"}},
		{&runtime.ListContainersRequest{}, nil, map[string]string{}},
	} {
		p := &page{texts: map[string]string{}}
		r.Tracer = p
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-1-2-01"))
		ctx, span := r.Start(ctx, "/runtime.v1.RuntimeService/Method")
		r.Describe(trace.Current(ctx), c.request)
		End(span, c.answer, nil)
		want := maps.Clone(c.want)
		maps.Copy(want, map[string]string{"rpc.system": "grpc", "rpc.service": "runtime.v1.RuntimeService", "rpc.method": "Method"})
		if !maps.Equal(p.texts, want) || p.name != "runtime.v1.RuntimeService/Method" || p.parent != "00-1-2-01" || p.err != nil {
			t.Errorf("%T: %q with %q, %v\nwant %q", c.request, p.name, p.texts, p.err, want)
		}
	}
	p := &page{texts: map[string]string{}}
	r.Tracer = p
	_, span := r.Start(t.Context(), "/runtime.v1.RuntimeService/Method")
	End(span, nil, status.Error(codes.NotFound, "gone"))
	if p.err == nil || p.err.Error() != "gone" || p.code != int64(codes.NotFound) || p.parent != "" {
		t.Errorf("%+v", p)
	}
}
