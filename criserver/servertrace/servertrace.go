// Package servertrace makes a span of each CRI request, with the names of what it is about. What is
// counted of requests is in package servermetrics, beside this one.
package servertrace

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/trace"
)

// Requests traces requests. The zero value traces none, and costs no allocation.
type Requests struct {
	Tracer    trace.Tracer
	Sandboxes interface {
		Get(id string) (state.Sandbox, error)
	}
	Containers interface {
		Get(id string) (state.Container, error)
	}
}

// Start starts the span of a request, below the caller's own if it says that it has one, as a
// kubelet does that traces too.
func (r Requests) Start(ctx context.Context, method string) (context.Context, trace.Span) {
	if r.Tracer == nil {
		return ctx, trace.Span{}
	}
	name := strings.TrimPrefix(method, "/")
	md, _ := metadata.FromIncomingContext(ctx)
	ctx, span := trace.Root(ctx, r.Tracer, name, trace.Server, func(name string) string {
		if values := md.Get(name); len(values) == 1 {
			return values[0]
		}
		return ""
	})
	if span.On() {
		service, call, _ := strings.Cut(name, "/")
		span.RPC("grpc", service, call)
	}
	return ctx, span
}

// End ends the span of a request that has been answered.
func End(span trace.Span, resp any, answer error) {
	if !span.On() {
		return
	}
	st := status.Convert(answer)
	span.Number("rpc.grpc.status_code", int64(st.Code()))
	if answer != nil {
		span.End(errors.New(st.Message()))
		return
	}
	switch r := resp.(type) {
	case *runtime.RunPodSandboxResponse:
		span.Text(trace.SandboxID, r.GetPodSandboxId())
	case *runtime.CreateContainerResponse:
		span.Text(trace.ContainerID, r.GetContainerId())
	}
	span.End(nil)
}

// Describe tells the span what a request is about: names and ids. Labels, annotations and what a
// container is given are not among it.
func (r Requests) Describe(span trace.Span, request any) {
	if !span.On() {
		return
	}
	switch q := request.(type) {
	case *runtime.RunPodSandboxRequest:
		span.Text(trace.Handler, q.GetRuntimeHandler())
		pod(span, q.GetConfig().GetMetadata())
	case *runtime.CreateContainerRequest:
		r.sandbox(span, q.GetPodSandboxId())
		span.Text(trace.ContainerName, q.GetConfig().GetMetadata().GetName())
		span.Text(trace.ImageName, imageName(q.GetConfig().GetImage()))
	case interface{ GetContainerId() string }:
		span.Text(trace.ContainerID, q.GetContainerId())
		if c, err := r.Containers.Get(q.GetContainerId()); err == nil {
			span.Text(trace.ContainerName, c.Config.Value.GetMetadata().GetName())
			span.Text(trace.ImageName, imageName(c.Config.Value.GetImage()))
			r.sandbox(span, c.SandboxID)
		}
	case interface{ GetPodSandboxId() string }:
		r.sandbox(span, q.GetPodSandboxId())
	case interface{ GetImage() *runtime.ImageSpec }: // pulls, statuses and removals of images
		span.Text(trace.ImageName, imageName(q.GetImage()))
		span.Text(trace.Handler, q.GetImage().GetRuntimeHandler())
	}
}

func (r Requests) sandbox(span trace.Span, id string) {
	span.Text(trace.SandboxID, id)
	if sb, err := r.Sandboxes.Get(id); err == nil {
		span.Text(trace.Handler, sb.HandlerName)
		pod(span, sb.Config.Value.GetMetadata())
	}
}

func pod(span trace.Span, md *runtime.PodSandboxMetadata) {
	span.Text(trace.PodName, md.GetName())
	span.Text(trace.PodNamespace, md.GetNamespace())
	span.Text(trace.PodUID, md.GetUid())
}

// imageName is the name that a person gave an image, where the client tells it.
func imageName(image *runtime.ImageSpec) string {
	if name := image.GetUserSpecifiedImage(); name != "" {
		return name
	}
	return image.GetImage()
}

// Stream is a stream whose context has the span of its request.
func Stream(ctx context.Context, span trace.Span, stream grpc.ServerStream) grpc.ServerStream {
	if !span.On() {
		return stream
	}
	return traced{stream, ctx}
}

type traced struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (t traced) Context() context.Context { return t.ctx }
