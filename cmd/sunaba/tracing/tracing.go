// Package tracing records spans with OpenTelemetry's SDK and exports them by OTLP, as the usual
// OTEL_* variables say. It is off unless they ask for it. docs/tracing.md has the spans.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otrace "go.opentelemetry.io/otel/trace"

	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/version"
)

// flushLimit is how long Close waits for a collector.
const flushLimit = 3 * time.Second

// defaultEndpoint is where OTLP's specification has a collector; the SDK would ask there by TLS.
const defaultEndpoint = "http://localhost:4318/v1/traces"

// Tracing is a trace.Tracer. A nil one has nothing to close.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   otrace.Tracer
}

// Open returns what the environment asks for, nil for nothing. A collector is asked first when
// there are spans: that it does not answer delays nobody, and spans that do not fit into the queue
// are dropped.
func Open(logger *slog.Logger) (*Tracing, error) {
	on, err := environment(os.Getenv).wanted()
	if err != nil {
		return nil, fmt.Errorf("set up traces: %w", err)
	}
	if !on {
		return nil, nil
	}
	quiet := &occasional{logger: logger, every: time.Minute, now: time.Now}
	// The SDK has no other place for what it does not understand of the environment.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { quiet.warn("OpenTelemetry reports an error", err) }))
	otel.SetLogger(logr.FromSlogHandler(logger.Handler()))
	ctx := context.Background()
	var options []otlptracehttp.Option
	if environment(os.Getenv).otlp("ENDPOINT") == "" {
		options = append(options, otlptracehttp.WithEndpointURL(defaultEndpoint))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("set up traces: %w", err)
	}
	// What comes later wins: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "sunaba"), attribute.String("service.version", version.String()),
	), resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		quiet.warn("failed to read some attributes of the resource of traces", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(watched{exporter, quiet}), sdk.WithResource(about))
	logger.Info("exporting traces by OTLP")
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/sunaba-project/sunaba")}, nil
}

// Tracer is t for those who ask whether there is one.
func (t *Tracing) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t
}

// Close exports what is left, as far as the collector takes it in time.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what an export fails with is logged already
}

// Root implements trace.Tracer. The headers are those of W3C's trace context.
func (t *Tracing) Root(ctx context.Context, name string, kind trace.Kind, header func(string) string) (context.Context, trace.Recorder) {
	if header != nil {
		ctx = propagation.TraceContext{}.Extract(ctx, headers(header))
	}
	ctx, s := t.tracer.Start(ctx, name, otrace.WithSpanKind(kinds[kind]))
	if !s.IsRecording() { // the sampler has left out this trace
		return ctx, nil
	}
	return ctx, span{t.tracer, s}
}

var kinds = [...]otrace.SpanKind{trace.Internal: otrace.SpanKindInternal, trace.Server: otrace.SpanKindServer, trace.Client: otrace.SpanKindClient}

// maxHeader bounds a header of a trace context, which is passed on with each span.
const maxHeader = 512

// headers is what a caller has sent. It implements propagation.TextMapCarrier.
type headers func(name string) string

// Get implements propagation.TextMapCarrier.
func (h headers) Get(name string) string {
	if value := h(name); len(value) <= maxHeader {
		return value
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (headers) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (headers) Keys() []string { return nil }

// span is a trace.Recorder.
type span struct {
	tracer otrace.Tracer
	s      otrace.Span
}

// Child implements trace.Recorder.
func (s span) Child(ctx context.Context, name string, kind trace.Kind) (context.Context, trace.Recorder) {
	ctx, child := s.tracer.Start(ctx, name, otrace.WithSpanKind(kinds[kind]))
	return ctx, span{s.tracer, child}
}

// Text implements trace.Recorder.
func (s span) Text(key, value string) {
	s.s.SetAttributes(attribute.String(key, clean(value, maxText)))
}

// Number implements trace.Recorder.
func (s span) Number(key string, value int64) { s.s.SetAttributes(attribute.Int64(key, value)) }

// Event implements trace.Recorder.
func (s span) Event(name string, at time.Time) { s.s.AddEvent(name, otrace.WithTimestamp(at)) }

// End implements trace.Recorder.
func (s span) End(err error) {
	if err != nil {
		s.s.SetStatus(codes.Error, clean(err.Error(), maxError))
	}
	s.s.End()
}
