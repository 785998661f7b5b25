// Package server is the face that the kubelet and crictl see: CRI v1 over gRPC.
//
// The service is composed of one part per subject (sandboxes, containers, images, node, statistics,
// streaming). Their methods only translate; the work is done by the managers of the packages beside
// this one. What all requests share stands in the interceptors: no answer before recovery is done,
// and error classes become gRPC codes in one place.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/caller"
	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/checkpoint"
	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/events"
	"github.com/sunaba-project/sunaba/criserver/metrics"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/overhead"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/servermetrics"
	"github.com/sunaba-project/sunaba/criserver/servertrace"
	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/criserver/session/stream"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Options configure New.
type Options struct {
	Version     string // of the program
	Handlers    *runtimeclass.Table
	Images      *images.Service
	Network     network.Network
	Cgroups     *cgroup.Manager
	Host        spec.Host
	Runtime     func(binary string) ociruntime.Report // what is known of an OCI runtime now
	Sandboxes   *sandbox.Manager
	Containers  *container.Manager
	Sessions    *session.Manager
	Checkpoints *checkpoint.Service
	Events      *events.Hub // follows the records of both
	Streams     *stream.Server
	// Root and State are the server's folders, for verbose answers; ImagesDir is where containers'
	// layers are written.
	Root, State, ImagesDir string
	Overhead               OverheadOptions
	Metrics                *servermetrics.Set // nil = nobody collects them
	Tracer                 trace.Tracer       // nil = requests are not traced
	Logger                 *slog.Logger
}

// OverheadOptions say how the pods' overhead is watched.
type OverheadOptions struct {
	Every    time.Duration // between two samples of a pod
	All      bool          // also of pods that declare nothing: somebody collects the figures
	Patience time.Duration // how long a pod may exceed what it declares before a warning
	// Class names the RuntimeClass of a pod, which the CRI does not tell, by its handler and
	// declared overhead; "" if that is not certain.
	Class func(handler string, declared *runtime.LinuxContainerResources) string
}

// Server is a CRI server.
type Server struct {
	o         Options
	grpc      *grpc.Server
	service   *service
	stops     stops
	traces    servertrace.Requests
	ready     atomic.Bool
	overheads *overhead.Watch
	unwatch   context.CancelFunc
}

// maxMessage is what kubelets accept, and what is accepted here (gRPC's default is 4 MiB).
const maxMessage = 16 << 20

// service is CRI v1: each part is embedded and answers the requests of its subject.
type service struct {
	sandboxAPI
	containerAPI
	imageAPI
	nodeAPI
	statsAPI
	eventsAPI
	sessionAPI
	metricsAPI
	criuAPI
	unanswered
}

// unanswered is there so that a newer CRI can be compiled against.
type unanswered struct {
	runtime.UnimplementedRuntimeServiceServer
}

// New returns a server that does not listen yet.
func New(o Options) *Server {
	meter := newMeter(o)
	s := &Server{
		o: o, overheads: newWatch(o, meter), unwatch: func() {},
		stops:  stops{sandboxes: o.Sandboxes, containers: o.Containers, logger: o.Logger},
		traces: servertrace.Requests{Tracer: o.Tracer, Sandboxes: o.Sandboxes, Containers: o.Containers},
	}
	s.service = &service{
		sandboxAPI:   sandboxAPI{sandboxes: o.Sandboxes, containers: o.Containers, meter: meter, overheads: s.overheads},
		containerAPI: containerAPI{sandboxes: o.Sandboxes, containers: o.Containers, sessions: o.Sessions, checkpoints: o.Checkpoints, network: o.Network},
		imageAPI:     imageAPI{images: o.Images, handlers: o.Handlers, sandboxes: o.Sandboxes},
		nodeAPI:      nodeAPI{o: o},
		statsAPI:     statsAPI{sandboxes: o.Sandboxes, containers: o.Containers, meter: meter},
		eventsAPI:    eventsAPI{hub: o.Events},
		sessionAPI:   sessionAPI{sandboxes: o.Sandboxes, sessions: o.Sessions, streams: o.Streams},
		metricsAPI:   metricsAPI{sandboxes: o.Sandboxes, containers: o.Containers, meter: meter, table: metrics.New()},
		criuAPI:      criuAPI{sandboxes: o.Sandboxes, containers: o.Containers, checkpoints: o.Checkpoints, handlers: o.Handlers},
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(caller.Credentials()), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
	)
	runtime.RegisterRuntimeServiceServer(s.grpc, s.service)
	runtime.RegisterImageServiceServer(s.grpc, s.service)
	return s
}

// Recover finds out what happened to pods and containers while no server ran and removes what
// belongs to none. Until it has returned, every request is answered with Unavailable.
func (s *Server) Recover(ctx context.Context) {
	started := time.Now()
	s.o.Sandboxes.Recover(ctx, func(ctx context.Context, sb *sandbox.Sandbox, found sandbox.Found, shim *client.Client) {
		s.o.Sessions.Adopt(ctx, sb, shim)
		s.o.Containers.Adopt(ctx, sb, found, shim)
	})
	s.o.Containers.RemoveOrphans(ctx)
	if err := s.o.Network.GC(ctx, s.o.Sandboxes.Connected()); err != nil {
		s.o.Logger.Error("failed to remove leftovers of pod networks", "error", err)
	}
	s.ready.Store(true)
	ctx, s.unwatch = context.WithCancel(context.WithoutCancel(ctx))
	go s.overheads.Run(ctx)
	s.o.Logger.Info("pods and containers restored", "sandboxes", len(s.o.Sandboxes.List()), "containers", len(s.o.Containers.List()), "took", time.Since(started))
}

// Collectors give what the server does, what pods cost beyond their containers' own work, and the
// pods' shims, to Prometheus.
func (s *Server) Collectors() []prometheus.Collector {
	return append(s.o.Metrics.Collectors(), s.overheads.Collector(), shimCollector(s.o))
}

// NewMetrics returns what counts a server's requests, for Options.Metrics, and pulls and starts.
func NewMetrics(handlers *runtimeclass.Table) *servermetrics.Set {
	return servermetrics.New(servermetrics.Options{
		Services: []grpc.ServiceDesc{runtime.RuntimeService_ServiceDesc, runtime.ImageService_ServiceDesc}, Handlers: handlers, Class: class,
	})
}

// Serve answers requests until Stop is called.
func (s *Server) Serve(l net.Listener) error {
	go func() {
		if err := s.o.Streams.Serve(); err != nil {
			s.o.Logger.Error("streaming server failed: no exec, attach and port forwarding", "error", err)
		}
	}()
	if err := s.grpc.Serve(l); err != nil {
		return fmt.Errorf("serve CRI: %w", err)
	}
	return nil
}

// stopLimit is how long running requests may continue when the server is told to stop.
const stopLimit = 5 * time.Second

// Stop ends the server. Pods and containers run on.
func (s *Server) Stop() {
	s.unwatch()
	s.o.Events.Close()
	s.o.Streams.Stop()
	timer := time.AfterFunc(stopLimit, s.grpc.Stop)
	s.grpc.GracefulStop()
	timer.Stop()
	s.o.Sessions.Close()
	s.o.Containers.Close()
	s.o.Sandboxes.Close()
}
