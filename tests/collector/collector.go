// Package collector is a collector of OTLP over HTTP for tests, and reads what it was sent.
package collector

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Span is a span as it was exported.
type Span struct {
	Name, Trace, ID, Parent string // ids in hexadecimal digits, "" for no parent
	Kind                    traces.Span_SpanKind
	Start, End              time.Time
	Failed                  bool
	Error                   string
	Attributes              map[string]string
	Events                  []string
	Resource                map[string]string
}

// Collector keeps what it is sent.
type Collector struct {
	// URL is OTEL_EXPORTER_OTLP_ENDPOINT.
	URL    string
	server *httptest.Server

	mu     sync.Mutex
	spans  []Span
	raw    []byte
	header http.Header
	path   string
}

// Start starts one. The caller closes it.
func Start() *Collector {
	c := &Collector{}
	c.server = httptest.NewServer(http.HandlerFunc(c.serve))
	c.URL = c.server.URL
	return c
}

// Close ends it.
func (c *Collector) Close() { c.server.Close() }

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	var sent collect.ExportTraceServiceRequest
	switch {
	case err != nil:
	case r.Header.Get("Content-Type") == "application/json":
		// Ids are hexadecimal there and would be read as base64: only how many came is of use.
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, &sent)
	default:
		err = proto.Unmarshal(data, &sent)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw, c.header, c.path = append(c.raw, data...), r.Header.Clone(), r.URL.Path
	for _, rs := range sent.GetResourceSpans() {
		resource := texts(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				c.spans = append(c.spans, read(s, resource))
			}
		}
	}
}

func read(s *traces.Span, resource map[string]string) Span {
	out := Span{
		Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Kind: s.GetKind(), Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Failed: s.GetStatus().GetCode() == traces.Status_STATUS_CODE_ERROR, Error: s.GetStatus().GetMessage(),
		Attributes: texts(s.GetAttributes()), Resource: resource,
	}
	for _, e := range s.GetEvents() {
		out.Events = append(out.Events, e.GetName())
	}
	return out
}

func texts(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		default:
			out[kv.GetKey()] = fmt.Sprint(v)
		}
	}
	return out
}

// Spans are those that came so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Raw is all that came, as it was sent.
func (c *Collector) Raw() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.raw)
}

// Request is the path and the header of the last request.
func (c *Collector) Request() (string, http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.path, c.header
}

// Tree is the spans of a trace by the id of their parent, in the order in which they started.
type Tree map[string][]Span

// Of returns the spans of a trace.
func (c *Collector) Of(trace string) Tree {
	tree := Tree{}
	for _, s := range c.Spans() {
		if s.Trace == trace {
			tree[s.Parent] = append(tree[s.Parent], s)
		}
	}
	for _, children := range tree {
		slices.SortFunc(children, func(a, b Span) int { return a.Start.Compare(b.Start) })
	}
	return tree
}

// Below are the names of all spans below one, each with those that it is below.
func (t Tree) Below(id string) []string {
	var names []string
	for _, s := range t[id] {
		names = append(names, s.Name)
		for _, inner := range t.Below(s.ID) {
			names = append(names, s.Name+" > "+inner)
		}
	}
	return names
}

// Find is the first span of a name in the tree.
func (t Tree) Find(name string) (Span, bool) {
	for _, children := range t {
		for _, s := range children {
			if s.Name == name {
				return s, true
			}
		}
	}
	return Span{}, false
}
