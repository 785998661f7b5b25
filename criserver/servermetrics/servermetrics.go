// Package servermetrics counts what the server does, for Prometheus: requests, pulls, starts and
// errors. The values of all labels are from lists that the server has, so that no client, image or
// registry can add to them. docs/metrics.md has the list of all metrics.
package servermetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// other is the value of a label whose own one is not on the list.
const other = "unknown"

// OK is the result of what has not failed.
const OK = "OK"

// Options configure New.
type Options struct {
	Services []grpc.ServiceDesc  // whose requests are counted
	Handlers *runtimeclass.Table // whose pods and containers are counted
	Class    func(error) string  // names an error's class, one of few; OK of nil
}

// Set is the server's metrics. A nil one counts nothing. Its methods are safe for concurrent use.
type Set struct {
	class    func(error) string
	methods  map[string]string // by the full name that gRPC has for it
	handlers map[string]bool

	requests, errors                   *prometheus.CounterVec
	requestTimes                       *prometheus.HistogramVec
	pulls                              *prometheus.CounterVec
	pullBytes                          prometheus.Counter
	pullTimes                          prometheus.Histogram
	podStarts, containerStarts         *prometheus.CounterVec
	podStartTimes, containerStartTimes *prometheus.HistogramVec
}

// The upper bounds of the histograms' buckets, in seconds.
var (
	requestBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	startBuckets   = []float64{.005, .01, .025, .05, .1, .2, .3, .5, 1, 2.5, 5, 10, 30, 60, 120}
	pullBuckets    = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}
)

// New returns metrics that are all 0.
func New(o Options) *Set {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sunaba_" + name, Help: help}, labels)
	}
	times := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sunaba_" + name, Help: help, Buckets: buckets}, labels)
	}
	s := &Set{
		class: o.Class, methods: map[string]string{}, handlers: map[string]bool{},
		requests:     counter("cri_requests_total", "CRI requests over the socket, by method and gRPC code.", "method", "code"),
		requestTimes: times("cri_request_duration_seconds", "Time until CRI requests were answered. Streams are answered when they end.", requestBuckets, "method"),
		errors:       counter("cri_errors_total", "CRI requests that failed, by class: a gRPC code, or what the code does not tell.", "class"),
		pulls:        counter("image_pulls_total", "Pulls of images. Equal pulls at one time are one.", "result"),
		pullBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sunaba_image_pull_bytes_total", Help: "Bytes of manifests, configurations, layers and modules that pulls have fetched.",
		}),
		pullTimes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sunaba_image_pull_duration_seconds", Help: "Time of pulls that succeeded, with unpacking and compiling.", Buckets: pullBuckets,
		}),
		podStarts:           counter("pod_starts_total", "Pod sandboxes that were started, and that failed to start.", "handler", "result"),
		podStartTimes:       times("pod_start_duration_seconds", "Time of starts of pod sandboxes that succeeded.", startBuckets, "handler"),
		containerStarts:     counter("container_starts_total", "Containers that were started, and that failed to start.", "handler", "result"),
		containerStartTimes: times("container_start_duration_seconds", "Time of starts of containers that succeeded.", startBuckets, "handler"),
	}
	for _, service := range o.Services {
		for _, m := range service.Methods {
			s.methods["/"+service.ServiceName+"/"+m.MethodName] = m.MethodName
		}
		for _, m := range service.Streams {
			s.methods["/"+service.ServiceName+"/"+m.StreamName] = m.StreamName
		}
	}
	for _, h := range o.Handlers.All() {
		s.handlers[h.Name] = true
		s.podStarts.WithLabelValues(h.Name, OK)
		s.containerStarts.WithLabelValues(h.Name, OK)
	}
	s.pulls.WithLabelValues(OK)
	return s
}

// Collectors give the metrics to Prometheus.
func (s *Set) Collectors() []prometheus.Collector {
	if s == nil {
		return nil
	}
	return []prometheus.Collector{
		s.requests, s.requestTimes, s.errors, s.pulls, s.pullBytes, s.pullTimes,
		s.podStarts, s.podStartTimes, s.containerStarts, s.containerStartTimes,
	}
}

// Request counts a request: its method's full name, the code that it was answered with, and the
// error that this was made of.
func (s *Set) Request(method string, code codes.Code, err error, took time.Duration) {
	if s == nil {
		return
	}
	name, ok := s.methods[method]
	if !ok {
		name = other
	}
	s.requests.WithLabelValues(name, CodeName(code)).Inc()
	s.requestTimes.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		s.errors.WithLabelValues(s.class(err)).Inc()
	}
}

// CodeName is a code's name. A code that gRPC does not have may come from elsewhere in an error: it
// is Unknown.
func CodeName(code codes.Code) string {
	if code > codes.Unauthenticated { // the last one
		code = codes.Unknown
	}
	return code.String()
}

// Pull counts a pull, for which so many bytes were fetched.
func (s *Set) Pull(took time.Duration, bytes int64, err error) {
	if s == nil {
		return
	}
	s.pulls.WithLabelValues(s.class(err)).Inc()
	s.pullBytes.Add(float64(max(bytes, 0)))
	if err == nil {
		s.pullTimes.Observe(took.Seconds())
	}
}

// PodStart counts the start of a sandbox.
func (s *Set) PodStart(handler string, took time.Duration, err error) {
	if s != nil {
		s.start(s.podStarts, s.podStartTimes, handler, took, err)
	}
}

// ContainerStart counts the start of a container.
func (s *Set) ContainerStart(handler string, took time.Duration, err error) {
	if s != nil {
		s.start(s.containerStarts, s.containerStartTimes, handler, took, err)
	}
}

func (s *Set) start(starts *prometheus.CounterVec, times *prometheus.HistogramVec, handler string, took time.Duration, err error) {
	if !s.handlers[handler] { // of a pod that is older than the configuration
		handler = other
	}
	starts.WithLabelValues(handler, s.class(err)).Inc()
	if err == nil {
		times.WithLabelValues(handler).Observe(took.Seconds())
	}
}
