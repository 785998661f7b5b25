package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// book is a tracer that writes down what it is told.
type book struct{ lines []string }

type page struct {
	book *book
	path string
}

func (b *book) Root(ctx context.Context, name string, _ Kind, _ func(string) string) (context.Context, Recorder) {
	if name == "unsampled" {
		return ctx, nil
	}
	return ctx, page{b, name}
}

func (p page) note(text string) { p.book.lines = append(p.book.lines, p.path+": "+text) }

func (p page) Child(ctx context.Context, name string, _ Kind) (context.Context, Recorder) {
	return ctx, page{p.book, p.path + " > " + name}
}
func (p page) Text(key, value string)         { p.note(key + "=" + value) }
func (p page) Number(key string, v int64)     { p.note(fmt.Sprintf("%s=%d", key, v)) }
func (p page) Event(name string, _ time.Time) { p.note("event " + name) }
func (p page) End(err error) {
	if err != nil {
		p.note(err.Error())
		return
	}
	p.note("end")
}

func TestSpansTravelInTheContext(t *testing.T) {
	b := &book{}
	ctx, root := Root(context.Background(), b, "request", Server, nil)
	root.Text("empty", "")
	inner, span := Call(ctx, "ttrpc", "Task", "Create")
	Current(inner).Number("n", 1)
	_, deep := Start(context.WithoutCancel(inner), "deep")
	deep.Event("ready", time.Now())
	deep.End(errors.New("broken"))
	span.End(nil)
	root.End(nil)
	want := []string{
		"request > Task/Create: rpc.system=ttrpc", "request > Task/Create: rpc.service=Task", "request > Task/Create: rpc.method=Create",
		"request > Task/Create: n=1", "request > Task/Create > deep: event ready", "request > Task/Create > deep: broken",
		"request > Task/Create: end", "request: end",
	}
	if !slices.Equal(b.lines, want) {
		t.Errorf("%q\nwant %q", b.lines, want)
	}
	if !root.On() || !Current(inner).On() {
		t.Error("a span says that it is not recorded")
	}
}

// Below a trace that is not recorded, nothing is.
func TestUnsampledTraces(t *testing.T) {
	b := &book{}
	ctx, root := Root(context.Background(), b, "unsampled", Server, nil)
	_, span := Start(ctx, "step")
	root.Text("key", "value")
	root.End(nil)
	span.End(nil)
	if root.On() || span.On() || len(b.lines) > 0 {
		t.Errorf("recorded: %q", b.lines)
	}
}

// What is traced costs nothing where nobody asked for traces.
func TestOffAllocatesNothing(t *testing.T) {
	type other struct{}
	base := context.WithValue(context.Background(), other{}, "a request's own")
	service, method, failure := "containerd.task.v3.Task", "Create", errors.New("broken")
	if n := testing.AllocsPerRun(1000, func() {
		ctx, root := Root(base, nil, "request", Server, nil)
		ctx, call := Call(ctx, "ttrpc", service, method)
		ctx, step := Start(ctx, "step")
		step.Text(PodName, service)
		step.Number(Bytes, 1<<40)
		step.Event("ready", time.Time{})
		step.End(failure)
		call.End(nil)
		if Current(ctx).On() {
			t.Error("something is recorded")
		}
		root.End(nil)
	}); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkOff(b *testing.B) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, span := Start(ctx, "step")
		span.Text(PodName, "pod")
		span.End(nil)
	}
}

// The span of a transfer ends once, with what was read and why it broke off.
func TestTransfers(t *testing.T) {
	for _, c := range []struct {
		from io.Reader
		want []string
	}{
		{strings.NewReader("four"), []string{"fetch: " + Bytes + "=4", "fetch: end"}},
		{io.MultiReader(strings.NewReader("two"), iotest.ErrReader(errors.New("broken"))), []string{"fetch: " + Bytes + "=3", "fetch: broken"}},
		{nil, []string{"fetch: refused"}},
	} {
		b := &book{}
		_, span := Root(context.Background(), b, "fetch", Client, nil)
		r, err := Transfer(span, func() (io.ReadCloser, error) {
			if c.from == nil {
				return nil, errors.New("refused")
			}
			return io.NopCloser(c.from), nil
		})
		if err == nil {
			io.Copy(io.Discard, r)
			r.Close()
			r.Close()
		}
		if !slices.Equal(b.lines, c.want) {
			t.Errorf("%q, want %q", b.lines, c.want)
		}
	}
	whole := io.NopCloser(strings.NewReader("x"))
	if r, err := Transfer(Span{}, func() (io.ReadCloser, error) { return whole, nil }); r != whole || err != nil {
		t.Errorf("%v, %v", r, err)
	}
}
