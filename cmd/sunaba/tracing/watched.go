package tracing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// watched is an exporter whose errors are logged here: the SDK would write each to standard error.
type watched struct {
	sdk.SpanExporter
	log *occasional
}

// ExportSpans implements sdk.SpanExporter.
func (w watched) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := w.SpanExporter.ExportSpans(ctx, spans); err != nil {
		w.log.warn("failed to export spans, they are lost", err, "spans", len(spans))
	}
	return nil
}

// occasional logs at most one warning in a while, and with it how many it has left out.
type occasional struct {
	logger *slog.Logger
	every  time.Duration
	now    func() time.Time

	mu   sync.Mutex
	last time.Time
	more int
}

func (o *occasional) warn(text string, err error, attributes ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if !o.last.IsZero() && now.Sub(o.last) < o.every {
		o.more++
		return
	}
	attributes = append(attributes, "error", clean(err.Error(), maxError))
	if o.more > 0 {
		attributes = append(attributes, "left_out", o.more)
	}
	o.logger.Warn(text, attributes...)
	o.last, o.more = now, 0
}
