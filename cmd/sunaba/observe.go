package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	nodev1 "k8s.io/api/node/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/classes"
	"github.com/sunaba-project/sunaba/criserver/server"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// patience is how long a pod may cost more than it declares before the log says so.
const patience = time.Minute

// classBook holds the RuntimeClasses that the configuration names. They can be read anew while the
// server runs.
type classBook struct {
	paths []string
	now   atomic.Pointer[[]nodev1.RuntimeClass]
}

func openClasses(paths []string) (*classBook, error) {
	b := &classBook{paths: paths}
	return b, b.reload()
}

// reload reads the classes again. If they are not right, or a class's handler was changed, those
// before stay.
func (b *classBook) reload() error {
	all, err := classes.Read(b.paths)
	if err != nil {
		return err
	}
	if before := b.now.Load(); before != nil {
		if err := runtimeclass.CheckReload(*before, all); err != nil {
			return err
		}
	}
	b.now.Store(&all)
	return nil
}

// all are the classes as they were read last.
func (b *classBook) all() []nodev1.RuntimeClass { return *b.now.Load() }

// class is a pod's RuntimeClass, as far as handler and overhead tell.
func (b *classBook) class(handler string, declared *runtime.LinuxContainerResources) string {
	return runtimeclass.ClassOf(*b.now.Load(), handler, runtimeclass.Linux{
		MemoryBytes: declared.GetMemoryLimitInBytes(), CPUShares: declared.GetCpuShares(),
		CPUQuota: declared.GetCpuQuota(), CPUPeriod: declared.GetCpuPeriod(),
	})
}

// metricsServer answers Prometheus.
type metricsServer struct {
	listener net.Listener
	server   *http.Server
}

// serveMetrics listens at once and answers until Close. For an empty address it returns nil.
func serveMetrics(address string, server *server.Server, logger *slog.Logger) (*metricsServer, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	for _, c := range append(server.Collectors(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, errors.Join(fmt.Errorf("serve metrics: %w", err), l.Close())
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError)}))
	m := &metricsServer{listener: l, server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}
	go func() {
		if err := m.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("metrics server failed", "error", err)
		}
	}()
	logger.Info("serving metrics", "address", l.Addr().String())
	return m, nil
}

// Close ends the server; it may be nil.
func (m *metricsServer) Close() error {
	if m == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return m.server.Shutdown(ctx)
}
