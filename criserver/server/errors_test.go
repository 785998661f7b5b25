package server

import (
	"bytes"
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
		{errdefs.ErrOutOfRange, codes.OutOfRange},
		{errdefs.ErrAborted, codes.Aborted},
		{errdefs.ErrDataLoss, codes.DataLoss},
		{errors.Join(errdefs.ErrInternal, errdefs.ErrNotFound), codes.NotFound},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{fmt.Errorf("wait: %w", context.Canceled), codes.Canceled},
		// A request that ran out of time says so, whatever broke because of it.
		{fmt.Errorf("%w: %w", errdefs.ErrUnavailable, context.DeadlineExceeded), codes.DeadlineExceeded},
		{status.Error(codes.OutOfRange, "as it is"), codes.OutOfRange},
		// The kubelet knows these by the beginning of the text, which it sees with code Unknown
		// only.
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
		whole, text := status.Convert(c.err).Message(), status.Convert(got).Message()
		if rest, ok := strings.CutPrefix(whole, text); !ok || rest != "" && (text == "" || !strings.HasPrefix(rest, ": ")) {
			t.Errorf("%v: text %q", c.err, text)
		}
	}
	if got := status.Convert(toStatus(fmt.Errorf("image is empty: %w", errdefs.ErrInvalidArgument))).Message(); got != "image is empty" {
		t.Errorf("text %q has its class at the end", got)
	}
}

// The class of an error is of few: its code's name, or what the code does not tell.
func TestErrorsHaveClasses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "OK"},
		{errors.New("no class"), "Unknown"},
		{fmt.Errorf("find: %w", errdefs.ErrNotFound), "NotFound"},
		{fmt.Errorf("RegistryUnavailable: dial: %w", errdefs.ErrUnavailable), "RegistryUnavailable"},
		{errors.New("SignatureValidationFailed: x"), "SignatureValidationFailed"},
		{fmt.Errorf("write: %w", unix.ENOSPC), "DiskFull"},
		{&fs.PathError{Op: "open", Path: "x", Err: unix.EROFS}, "FailedPrecondition"},
		{errdefs.ErrResourceExhausted, "ResourceExhausted"},
		{status.Error(codes.Code(4711), "of a shim"), "Unknown"},
	} {
		if got := class(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
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

// What kubelets ask again and again is quiet, what an operator has to know is not.
func TestRequestsHaveALevel(t *testing.T) {
	var out bytes.Buffer
	s := &Server{o: Options{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}}
	ask := func(method string, err error) string {
		out.Reset()
		info := &grpc.UnaryServerInfo{FullMethod: "/runtime.v1.RuntimeService/" + method}
		_, _ = s.unary(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, err })
		return out.String()
	}
	if got := ask("Version", nil); !strings.Contains(got, "level=DEBUG") { // before recovery
		t.Errorf("a server that is not ready logs %s", got)
	}
	s.ready.Store(true)
	gone := fmt.Errorf("find container: id %q: %w", "x", errdefs.ErrNotFound)
	for _, c := range []struct {
		method string
		err    error
		level  string
	}{
		{"ContainerStatus", nil, "DEBUG"},
		{"ContainerStatus", gone, "DEBUG"},
		{"PodSandboxStatus", gone, "DEBUG"},
		{"ExecSync", gone, "DEBUG"},
		{"GetContainerEvents", context.Canceled, "DEBUG"},
		{"ContainerStats", errors.New("no class"), "WARN"},
		{"ExecSync", context.DeadlineExceeded, "INFO"},
		{"PullImage", gone, "WARN"},
		{"PullImage", fmt.Errorf("pull: %w", errdefs.ErrUnauthenticated), "WARN"},
		{"PullImage", context.Canceled, "INFO"},
		{"RunPodSandbox", fmt.Errorf("set up network: %w", errdefs.ErrUnavailable), "WARN"},
		{"StartContainer", fmt.Errorf("start: %w", errdefs.ErrInvalidArgument), "WARN"},
		{"StopPodSandbox", context.DeadlineExceeded, "WARN"},
		{"RemoveContainer", fmt.Errorf("remove: %w", errdefs.ErrFailedPrecondition), "WARN"},
	} {
		got := ask(c.method, c.err)
		if !strings.Contains(got, "level="+c.level+" ") || !strings.Contains(got, "method="+c.method) || c.err != nil && !strings.Contains(got, " code=") {
			t.Errorf("%s, %v: want level %s: %s", c.method, c.err, c.level, got)
		}
	}
	served := map[string]bool{}
	for _, d := range []grpc.ServiceDesc{runtime.RuntimeService_ServiceDesc, runtime.ImageService_ServiceDesc} {
		for _, m := range d.Methods {
			served[m.MethodName] = true
		}
	}
	for _, name := range changes {
		if !served[name] {
			t.Errorf("%q is no request of CRI", name)
		}
	}
}

// A network that is not ready is told of once, and so is that it is ready again.
func TestNetworkIsNotedWhenItChanges(t *testing.T) {
	var out bytes.Buffer
	a := &nodeAPI{o: Options{Logger: slog.New(slog.NewTextHandler(&out, nil))}}
	for _, problem := range []string{"", "no plugin", "no plugin", "", ""} {
		a.noteNetwork(t.Context(), problem)
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || strings.Count(got, `level=WARN msg="network check failed" error="no plugin"`) != 1 || strings.Count(got, `level=INFO msg="network is ready"`) != 1 {
		t.Errorf("log:\n%s", got)
	}
}
