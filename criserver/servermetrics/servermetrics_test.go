package servermetrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

var errGone = errors.New("gone")

func newSet(t testing.TB) *Set {
	t.Helper()
	handlers, err := runtimeclass.NewTable([]runtimeclass.Handler{{Name: "runc", Type: runtimeclass.OCI, Default: true}})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Services: []grpc.ServiceDesc{runtime.RuntimeService_ServiceDesc, runtime.ImageService_ServiceDesc}, Handlers: handlers,
		Class: func(err error) string {
			if err == nil {
				return OK
			}
			return err.Error()
		},
	})
}

func all(s *Set) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(s.Collectors()...)
	return r
}

func TestWhatIsCounted(t *testing.T) {
	s := newSet(t)
	s.Request("/runtime.v1.RuntimeService/Version", codes.OK, nil, 2*time.Millisecond)
	s.Request("/runtime.v1.RuntimeService/GetContainerEvents", codes.Canceled, errGone, time.Second)
	s.Request("/runtime.v1.ImageService/PullImage", codes.NotFound, errGone, time.Second)
	s.Pull(time.Second, 4096, nil)
	s.Pull(time.Second, 10, errGone)
	s.PodStart("runc", time.Second, nil)
	s.PodStart("runc", time.Second, errGone)
	s.ContainerStart("runc", 20*time.Millisecond, nil)
	want := `
# HELP sunaba_container_starts_total Containers that were started, and that failed to start.
# TYPE sunaba_container_starts_total counter
sunaba_container_starts_total{handler="runc",result="OK"} 1
# HELP sunaba_cri_errors_total CRI requests that failed, by class: a gRPC code, or what the code does not tell.
# TYPE sunaba_cri_errors_total counter
sunaba_cri_errors_total{class="gone"} 2
# HELP sunaba_cri_requests_total CRI requests over the socket, by method and gRPC code.
# TYPE sunaba_cri_requests_total counter
sunaba_cri_requests_total{code="Canceled",method="GetContainerEvents"} 1
sunaba_cri_requests_total{code="NotFound",method="PullImage"} 1
sunaba_cri_requests_total{code="OK",method="Version"} 1
# HELP sunaba_image_pull_bytes_total Bytes of manifests, configurations, layers and modules that pulls have fetched.
# TYPE sunaba_image_pull_bytes_total counter
sunaba_image_pull_bytes_total 4106
# HELP sunaba_image_pulls_total Pulls of images. Equal pulls at one time are one.
# TYPE sunaba_image_pulls_total counter
sunaba_image_pulls_total{result="OK"} 1
sunaba_image_pulls_total{result="gone"} 1
# HELP sunaba_pod_starts_total Pod sandboxes that were started, and that failed to start.
# TYPE sunaba_pod_starts_total counter
sunaba_pod_starts_total{handler="runc",result="OK"} 1
sunaba_pod_starts_total{handler="runc",result="gone"} 1
`
	if err := testutil.GatherAndCompare(all(s), strings.NewReader(want), "sunaba_cri_requests_total", "sunaba_cri_errors_total",
		"sunaba_image_pulls_total", "sunaba_image_pull_bytes_total", "sunaba_pod_starts_total", "sunaba_container_starts_total"); err != nil {
		t.Error(err)
	}
	for _, h := range []struct {
		of     string
		c      prometheus.Collector
		series int
	}{{"requests", s.requestTimes, 3}, {"pulls", s.pullTimes, 1}, {"pods", s.podStartTimes, 1}, {"containers", s.containerStartTimes, 1}} {
		if n := testutil.CollectAndCount(h.c); n != h.series {
			t.Errorf("%s: %d histograms, want %d", h.of, n, h.series)
		}
	}
	if problems, err := testutil.GatherAndLint(all(s)); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// Names that a client, a record or a library chooses add no series.
func TestForeignNamesAddNoSeries(t *testing.T) {
	s := newSet(t)
	for i := range 1000 {
		s.Request(fmt.Sprintf("/runtime.v1.RuntimeService/Method%d", i), codes.Code(100+i), nil, 0)
		s.PodStart(fmt.Sprintf("handler-%d", i), 0, nil)
		s.ContainerStart(fmt.Sprintf("handler-%d", i), 0, nil)
	}
	for name, c := range map[string]prometheus.Collector{
		"requests": s.requests, "request times": s.requestTimes, "pod starts": s.podStarts, "pod start times": s.podStartTimes,
		"container starts": s.containerStarts, "container start times": s.containerStartTimes,
	} {
		if n := testutil.CollectAndCount(c); n > 2 {
			t.Errorf("%s: %d series", name, n)
		}
	}
	if n := testutil.ToFloat64(s.requests.WithLabelValues(other, "Unknown")); n != 1000 {
		t.Errorf("%g requests of methods that are not known", n)
	}
}

// Each name of a method is one of a method only: the label does not say which service it is of.
func TestMethodNamesAreUnique(t *testing.T) {
	s, names := newSet(t), map[string]string{}
	for full, name := range s.methods {
		if before, ok := names[name]; ok {
			t.Errorf("%s and %s have one name", before, full)
		}
		names[name] = full
	}
	if len(names) < 30 {
		t.Errorf("%d methods are known", len(names))
	}
}

// To count a request that did not fail takes no memory, and without a set it takes nothing.
func TestCountingAllocatesNothing(t *testing.T) {
	const method = "/runtime.v1.RuntimeService/Version"
	for name, s := range map[string]*Set{"on": newSet(t), "off": nil} {
		s.Request(method, codes.OK, nil, time.Millisecond)
		if n := testing.AllocsPerRun(100, func() { s.Request(method, codes.OK, nil, time.Millisecond) }); n > 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
	var off *Set
	off.Pull(0, 0, errGone)
	off.PodStart("", 0, errGone)
	off.ContainerStart("", 0, errGone)
	if off.Collectors() != nil {
		t.Error("there is something to collect")
	}
}
