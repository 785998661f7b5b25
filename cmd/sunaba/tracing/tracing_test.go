package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/tests/collector"
)

func open(t *testing.T, env map[string]string) (*Tracing, *bytes.Buffer) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	var log bytes.Buffer
	tracing, err := Open(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return tracing, &log
}

// A caller's headers name the parent; the resource and the headers are those of the environment.
func TestExport(t *testing.T) {
	for protocol, kind := range map[string]string{"": "application/x-protobuf", "http/json": "application/json"} {
		c := collector.Start()
		defer c.Close()
		tracing, log := open(t, map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=blue",
			"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_SERVICE_NAME": "node-7", "OTEL_RESOURCE_ATTRIBUTES": "rack=12,service.name=other",
		})
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		ctx, root := trace.Root(context.Background(), tracing.Tracer(), "request", trace.Server, func(name string) string {
			return map[string]string{"traceparent": parent, "tracestate": strings.Repeat("a=b,", 1000)}[name]
		})
		_, step := trace.Start(ctx, "step")
		step.Text(trace.ImageName, "https://u:password@h/x?sig=signature")
		step.End(errors.New(`get "https://h/x?sig=signature": EOF`))
		root.Number(trace.Bytes, 7)
		root.Event("ready", time.Now())
		root.End(nil)
		tracing.Close()
		path, header := c.Request()
		if path != "/v1/traces" || header.Get("X-Tenant") != "blue" || header.Get("Content-Type") != kind {
			t.Errorf("sent to %q with %v", path, header)
		}
		if spans := c.Spans(); len(spans) != 2 {
			t.Fatalf("%d spans: %s", len(spans), log)
		}
		if raw := c.Raw(); bytes.Contains(raw, []byte("password")) || bytes.Contains(raw, []byte("signature")) {
			t.Errorf("a secret is exported: %q", raw)
		}
		if protocol != "" {
			continue
		}
		tree := c.Of("0af7651916cd43dd8448eb211c80319c")
		if names := strings.Join(tree.Below("b7ad6b7169203331"), ", "); names != "request, request > step" {
			t.Errorf("spans %q", names)
		}
		request, _ := tree.Find("request")
		failed, _ := tree.Find("step")
		if request.Failed || request.Attributes[trace.Bytes] != "7" || len(request.Events) != 1 || !failed.Failed || failed.Error != `get "https://h/x?…": EOF` {
			t.Errorf("%+v, %+v", request, failed)
		}
		if r := request.Resource; r["service.name"] != "node-7" || r["rack"] != "12" || r["service.version"] == "" || r["host.name"] == "" {
			t.Errorf("resource %v", r)
		}
	}
}

// A caller that does not sample its trace, as a kubelet mostly does not, has nothing recorded.
func TestParentThatIsNotSampled(t *testing.T) {
	c := collector.Start()
	defer c.Close()
	tracing, _ := open(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL})
	ctx, root := trace.Root(context.Background(), tracing.Tracer(), "request", trace.Server, func(name string) string {
		return map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}[name]
	})
	_, step := trace.Start(ctx, "step")
	if root.On() || step.On() {
		t.Error("it is recorded")
	}
	tracing.Close()
	if n := len(c.Spans()); n > 0 {
		t.Errorf("%d spans", n)
	}
}

func TestSampler(t *testing.T) {
	c := collector.Start()
	defer c.Close()
	tracing, _ := open(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25",
	})
	const all = 400
	for range all {
		_, root := trace.Root(context.Background(), tracing.Tracer(), "request", trace.Server, nil)
		root.End(nil)
	}
	tracing.Close()
	if n := len(c.Spans()); n < all/10 || n > all/2 {
		t.Errorf("%d of %d spans", n, all)
	}
}

// What nobody asked for is not there: no tracer, no goroutine, and nothing to close.
func TestOff(t *testing.T) {
	before := runtime.NumGoroutine()
	tracing, log := open(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_TRACES_EXPORTER": ""})
	if tracing != nil || tracing.Tracer() != nil || log.Len() > 0 {
		t.Errorf("%v, log %q", tracing, log)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	tracing.Close()
}

// A collector that takes connections and never answers delays no span, and the end for some seconds
// at most; spans beyond the queue are dropped, and the log says so once.
func TestDeadCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tracing, log := open(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + l.Addr().String(), "OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_BSP_EXPORT_TIMEOUT": "200",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16", "OTEL_BSP_MAX_QUEUE_SIZE": "64",
	})
	var longest time.Duration
	for range 20 {
		for range 1000 {
			started := time.Now()
			_, root := trace.Root(context.Background(), tracing.Tracer(), "request", trace.Server, nil)
			root.End(nil)
			longest = max(longest, time.Since(started))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if longest > time.Second {
		t.Errorf("a span took %v", longest)
	}
	started := time.Now()
	tracing.Close()
	if took := time.Since(started); took > flushLimit+2*time.Second {
		t.Errorf("the end took %v", took)
	}
	if n := strings.Count(log.String(), "failed to export spans"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log)
	}
}

func TestOccasionalWarnings(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1000, 0)
	o := &occasional{logger: slog.New(slog.NewTextHandler(&log, nil)), every: time.Minute, now: func() time.Time { return now }}
	for range 119 {
		o.warn("failed", errors.New("broken"))
		now = now.Add(time.Second)
	}
	now = now.Add(time.Minute)
	o.warn("failed", errors.New("broken"))
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "left_out=59") || !strings.Contains(lines[2], "left_out=58") {
		t.Errorf("%q", lines)
	}
}

func TestWrongExporterIsSaid(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "jaeger")
	if _, err := Open(slog.New(slog.DiscardHandler)); err == nil || err.Error() != `set up traces: OTEL_TRACES_EXPORTER is "jaeger": there are "otlp" and "none"` {
		t.Errorf("error %v", err)
	}
}
