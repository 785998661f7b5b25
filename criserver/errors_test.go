package criserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestErrorsBecomeCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{nil, codes.OK},
		{errors.New("no class"), codes.Unknown},
		{fmt.Errorf("find: %w", errdefs.ErrNotFound), codes.NotFound},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", errdefs.ErrInvalidArgument)), codes.InvalidArgument},
		{errdefs.ErrAlreadyExists, codes.AlreadyExists},
		{errdefs.ErrFailedPrecondition, codes.FailedPrecondition},
		{errdefs.ErrNotImplemented, codes.Unimplemented},
		{errdefs.ErrUnavailable, codes.Unavailable},
		{errdefs.ErrResourceExhausted, codes.ResourceExhausted},
		{errdefs.ErrPermissionDenied, codes.PermissionDenied},
		{errdefs.ErrUnauthenticated, codes.Unauthenticated},
		{errdefs.ErrInternal, codes.Internal},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{fmt.Errorf("wait: %w", context.Canceled), codes.Canceled},
		// A request that ran out of time says so, whatever broke because of it.
		{fmt.Errorf("%w: %w", errdefs.ErrUnavailable, context.DeadlineExceeded), codes.DeadlineExceeded},
		{status.Error(codes.OutOfRange, "as it is"), codes.OutOfRange},
		// The kubelet knows these by the beginning of the text, which it sees with code Unknown only.
		{fmt.Errorf("RegistryUnavailable: dial: %w", errdefs.ErrUnavailable), codes.Unknown},
		{errors.New("SignatureValidationFailed: x"), codes.Unknown},
		{fmt.Errorf("RROUnsupported: %w", errdefs.ErrInvalidArgument), codes.Unknown},
		{fmt.Errorf("ImageVolumeMountFailed: %w", errdefs.ErrNotFound), codes.Unknown},
		{fmt.Errorf("pull: RegistryUnavailable: %w", errdefs.ErrUnavailable), codes.Unavailable},
	} {
		got := toStatus(c.err)
		if status.Code(got) != c.code {
			t.Errorf("%v: code %s, want %s", c.err, status.Code(got), c.code)
		}
		if c.err != nil && status.Convert(got).Message() != status.Convert(c.err).Message() {
			t.Errorf("%v: text %q", c.err, status.Convert(got).Message())
		}
	}
}

func TestNoAnswerBeforeRecovery(t *testing.T) {
	s := &Server{o: Options{Logger: slog.New(slog.DiscardHandler)}}
	info := &grpc.UnaryServerInfo{FullMethod: "/runtime.v1.RuntimeService/Version"}
	called := false
	handle := func(context.Context, any) (any, error) { called = true; return nil, nil }
	if _, err := s.unary(t.Context(), nil, info, handle); status.Code(err) != codes.Unavailable || called {
		t.Errorf("before: %v, called %t", err, called)
	}
	s.ready.Store(true)
	if _, err := s.unary(t.Context(), nil, info, handle); err != nil || !called {
		t.Errorf("after: %v, called %t", err, called)
	}
}

func TestRequestsSayWhatTheyAreAbout(t *testing.T) {
	s := &Server{o: Options{Logger: slog.New(slog.DiscardHandler)}}
	s.ready.Store(true)
	for _, c := range []struct {
		req   any
		field string // that is missed, "" for none
	}{
		{&runtime.RemoveContainerRequest{}, "container_id"},
		{&runtime.ExecSyncRequest{Cmd: []string{"true"}}, "container_id"},
		{&runtime.ContainerStatsRequest{}, "container_id"},
		{&runtime.StopPodSandboxRequest{}, "pod_sandbox_id"},
		{&runtime.CreateContainerRequest{Config: &runtime.ContainerConfig{}}, "pod_sandbox_id"},
		{&runtime.RemoveContainerRequest{ContainerId: "c"}, ""},
		{&runtime.PortForwardRequest{PodSandboxId: "p"}, ""},
		{&runtime.RunPodSandboxRequest{}, ""},
		{&runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{}}, ""},
	} {
		called := false
		handle := func(context.Context, any) (any, error) { called = true; return nil, nil }
		_, err := s.unary(t.Context(), c.req, &grpc.UnaryServerInfo{FullMethod: "/runtime.v1.RuntimeService/X"}, handle)
		if c.field == "" {
			if err != nil || !called {
				t.Errorf("%T %v: %v, called %t", c.req, c.req, err, called)
			}
		} else if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.field) || called {
			t.Errorf("%T %v: %v, called %t", c.req, c.req, err, called)
		}
	}
}

// What a full disk refuses says what helps.
func TestFullDiskHasItsCode(t *testing.T) {
	got := toStatus(fmt.Errorf("write record: %w", &fs.PathError{Op: "write", Path: "/x", Err: unix.ENOSPC}))
	if status.Code(got) != codes.ResourceExhausted || !strings.Contains(status.Convert(got).Message(), "make room") {
		t.Errorf("%v", got)
	}
}
