package probes

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// health returns a check that passes if the server's health service says SERVING.
func (m *maker) health(a *corev1.GRPCAction, ip string) (check, error) {
	if a.Mode != nil && *a.Mode != corev1.GRPCProbeModePlaintext {
		return nil, fmt.Errorf("grpc.mode: %s is not supported; leave it out to probe without TLS: %w", *a.Mode, errdefs.ErrInvalidArgument)
	}
	address, err := resolve("", ip, intstr.FromInt32(a.Port), &corev1.Container{})
	if err != nil {
		return nil, err
	}
	var service string
	if a.Service != nil {
		service = *a.Service
	}
	return func(ctx context.Context, _ string, limit time.Duration) outcome {
		return checkHealth(ctx, address, service, m.agent, limit)
	}, nil
}

// The most that is taken of a health service's answer, in bytes.
const (
	maxHealthMessage = 4 << 10
	maxHealthHeaders = 64 << 10
)

func checkHealth(ctx context.Context, address, service, agent string, limit time.Duration) outcome {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(agent),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, address) }),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithMaxHeaderListSize(maxHealthHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHealthMessage)))
	if err != nil {
		return fail(fmt.Sprintf("error: failed to connect service at %q: %+v", address, err))
	}
	defer conn.Close()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return fail(fmt.Sprintf("timeout: failed to connect service %q within %v: %+v", address, limit, ctx.Err()))
		}
		conn.Connect()
	}
	answer, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: service})
	switch s := status.Convert(err); {
	case s.Code() == codes.OK:
	case s.Code() == codes.Unimplemented:
		return fail("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + s.Message())
	case s.Code() == codes.DeadlineExceeded:
		return fail(fmt.Sprintf("timeout: health rpc did not complete within %v", limit))
	default:
		return fail(fmt.Sprintf("error: health rpc probe failed: %+v", err))
	}
	if answer.GetStatus() != health.HealthCheckResponse_SERVING {
		return fail(fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus()))
	}
	return outcome{}
}
