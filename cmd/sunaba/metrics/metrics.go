// Package metrics serves the server's metrics to Prometheus.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
	"github.com/sunaba-project/sunaba/version"
)

// Server answers Prometheus.
type Server struct{ server *http.Server }

// maxScrapes is how many requests are answered at one time; others are refused.
const maxScrapes = 4

// Serve listens at once and answers until Close. For an empty address it returns nil. On a loopback
// address it answers only requests that name one, as the read-only API of the pods does.
func Serve(address string, own []prometheus.Collector, logger *slog.Logger) (*Server, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	for _, c := range append(own, buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, errors.Join(fmt.Errorf("serve metrics: %w", err), l.Close())
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError), MaxRequestsInFlight: maxScrapes,
	}))
	s := &Server{&http.Server{
		Handler: api.ReadOnly(mux, l.Addr()), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 5 * time.Minute,
	}}
	go func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("metrics server failed", "error", err)
		}
	}()
	logger.Info("serving metrics", "address", l.Addr().String())
	return s, nil
}

// buildInfo says what the server was built of.
func buildInfo() prometheus.Collector {
	wazero, _, _ := strings.Cut(wazeroversion.Linked(), " ") // without its checksum
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sunaba_build_info", Help: "1, with the versions of the server, of Go and of wazero.",
		ConstLabels: prometheus.Labels{"version": version.String(), "go_version": runtime.Version(), "wazero_version": wazero},
	}, func() float64 { return 1 })
}

// Close ends the server; it may be nil.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.server.Shutdown(ctx)
}
