// Package trace lets any part of the server say which steps a request was made of and how long each
// took, for an administrator who asks where the time of a pod's start goes. It is only the seam:
// who records spans stands in cmd/sunaba/tracing, and nothing else links OpenTelemetry's SDK for
// it.
//
// A span travels in the context. Where the context has none, nothing is recorded, and all of this
// costs no allocation.
package trace

import (
	"context"
	"time"
)

// Tracer records the spans that have no parent in this process. Its methods are safe for concurrent
// use.
type Tracer interface {
	// Root starts such a span. header gives the headers of a remote caller, whose span is the
	// parent if they name one; it may be nil. A nil Recorder means that this trace is not recorded.
	Root(ctx context.Context, name string, kind Kind, header func(name string) string) (context.Context, Recorder)
}

// Recorder records one span. It bounds all texts, and removes what may be secret of addresses in
// them.
type Recorder interface {
	// Child starts a span below this one.
	Child(ctx context.Context, name string, kind Kind) (context.Context, Recorder)
	Text(key, value string)
	Number(key string, value int64)
	// Event records that something happened at a time.
	Event(name string, at time.Time)
	// End ends the span, which failed unless err is nil.
	End(err error)
}

// Kind says whose work a span is.
type Kind int

// The kinds of spans.
const (
	Internal Kind = iota
	Server        // a request of another process
	Client        // a request to another process
)

// Span is a span that may not be recorded: the zero value is not.
type Span struct{ r Recorder }

type key struct{}

// Root starts a span that has no parent in this process. A nil tracer records nothing.
func Root(ctx context.Context, t Tracer, name string, kind Kind, header func(name string) string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return with(t.Root(ctx, name, kind, header))
}

// Start starts a span below that of the context. The caller ends it.
func Start(ctx context.Context, name string) (context.Context, Span) {
	parent := Current(ctx)
	if parent.r == nil {
		return ctx, Span{}
	}
	return with(parent.r.Child(ctx, name, Internal))
}

// Call starts a span of a call to another process, below that of the context. The caller ends it.
func Call(ctx context.Context, system, service, method string) (context.Context, Span) {
	parent := Current(ctx)
	if parent.r == nil {
		return ctx, Span{}
	}
	ctx, span := with(parent.r.Child(ctx, service+"/"+method, Client))
	span.RPC(system, service, method)
	return ctx, span
}

func with(ctx context.Context, r Recorder) (context.Context, Span) {
	if r == nil {
		return ctx, Span{}
	}
	return context.WithValue(ctx, key{}, r), Span{r}
}

// Current returns the span of the context.
func Current(ctx context.Context) Span {
	r, _ := ctx.Value(key{}).(Recorder)
	return Span{r}
}

// On says whether the span is recorded, for callers that would have to look up what they tell it.
func (s Span) On() bool { return s.r != nil }

// Text adds a text, unless it is empty.
func (s Span) Text(key, value string) {
	if s.r != nil && value != "" {
		s.r.Text(key, value)
	}
}

// Number adds a number.
func (s Span) Number(key string, value int64) {
	if s.r != nil {
		s.r.Number(key, value)
	}
}

// RPC adds which method of which service a span is a call of.
func (s Span) RPC(system, service, method string) {
	s.Text("rpc.system", system)
	s.Text("rpc.service", service)
	s.Text("rpc.method", method)
}

// Event records that something happened at a time.
func (s Span) Event(name string, at time.Time) {
	if s.r != nil {
		s.r.Event(name, at)
	}
}

// End ends the span, which failed unless err is nil.
func (s Span) End(err error) {
	if s.r != nil {
		s.r.End(err)
	}
}

// Names of attributes that several parts use: those of OpenTelemetry's conventions where it has
// one.
const (
	PodName       = "k8s.pod.name"
	PodUID        = "k8s.pod.uid"
	PodNamespace  = "k8s.namespace.name"
	SandboxID     = "sunaba.sandbox.id"
	Handler       = "sunaba.handler"
	ContainerName = "k8s.container.name"
	ContainerID   = "container.id"
	ImageName     = "container.image.name"
	Digest        = "oci.digest"
	Bytes         = "sunaba.bytes"
)
