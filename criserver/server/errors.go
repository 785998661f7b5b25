package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/criserver/servermetrics"
	"github.com/sunaba-project/sunaba/criserver/servertrace"
	"github.com/sunaba-project/sunaba/host/durable"
)

// classes are the error classes, in the order in which they count where an error is of several: a
// request that ran out of time says so, whatever broke because of it.
var classes = []error{
	context.DeadlineExceeded, context.Canceled,
	errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrInvalidArgument, errdefs.ErrFailedPrecondition,
	errdefs.ErrNotImplemented, errdefs.ErrUnavailable, errdefs.ErrUnauthenticated, errdefs.ErrPermissionDenied,
	errdefs.ErrResourceExhausted, errdefs.ErrOutOfRange, errdefs.ErrAborted, errdefs.ErrDataLoss, errdefs.ErrInternal,
}

// spoken are the errors that the kubelet recognizes by their prefix. It sees the prefix only with
// code Unknown: for any other code its client puts words in front.
var spoken = []error{
	crierrors.ErrRegistryUnavailable, crierrors.ErrSignatureValidationFailed,
	crierrors.ErrRROUnsupported, crierrors.ErrImageVolumeMountFailed,
}

// fullDisk is the class of what failed because a disk is full.
const fullDisk = "DiskFull"

// class names an error's class, for metrics: that of its gRPC code, or what the code does not tell.
func class(err error) string {
	st := status.Convert(toStatus(err))
	switch said := saying(st.Message()); {
	case st.Code() == codes.Unknown && said != nil:
		return said.Error()
	case st.Code() == codes.ResourceExhausted && durable.Full(err):
		return fullDisk
	}
	return servermetrics.CodeName(st.Code())
}

// saying is the spoken error that a text starts with, nil for none.
func saying(text string) error {
	for _, s := range spoken {
		if strings.HasPrefix(text, s.Error()) {
			return s
		}
	}
	return nil
}

// toStatus gives an error its gRPC code.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	text := errtext.Of(err)
	if saying(text) != nil {
		return status.Error(codes.Unknown, text)
	}
	for _, class := range classes {
		if errors.Is(err, class) {
			return status.Error(status.Code(errgrpc.ToGRPC(class)), text)
		}
	}
	if durable.Full(err) {
		return status.Error(codes.ResourceExhausted, text+"; make room by removing pods, containers or images")
	}
	if durable.ReadOnly(err) {
		return status.Error(codes.FailedPrecondition, text+"; the kernel's log says why: repair the file system, mount it again and restart the server")
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unknown, text)
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	started := time.Now()
	ctx, span := s.traces.Start(ctx, info.FullMethod)
	var resp any
	err := s.admit()
	if err == nil {
		err = identified(req)
	}
	if err == nil {
		s.stops.see(ctx, req)
		s.traces.Describe(span, req)
		resp, err = handle(ctx, req)
	}
	answer := s.done(ctx, info.FullMethod, started, err)
	servertrace.End(span, resp, answer)
	return resp, answer
}

func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	started := time.Now()
	ctx, span := s.traces.Start(stream.Context(), info.FullMethod)
	err := s.admit()
	if err == nil {
		err = handle(srv, servertrace.Stream(ctx, span, stream))
	}
	answer := s.done(ctx, info.FullMethod, started, err)
	servertrace.End(span, nil, answer)
	return answer
}

// done logs and counts a request that ended, and returns what it is answered with.
func (s *Server) done(ctx context.Context, method string, started time.Time, err error) error {
	answer := toStatus(err)
	s.log(ctx, method, started, answer)
	s.o.Metrics.Request(method, status.Code(answer), err, time.Since(started))
	return answer
}

// identified refuses a request about one pod or container that says not which. To continue would be
// to remove nothing and call it done: what is removed already may be removed again.
func identified(req any) error {
	var field, id string
	switch r := req.(type) {
	case interface{ GetContainerId() string }:
		field, id = "container_id", r.GetContainerId()
	case interface{ GetPodSandboxId() string }:
		field, id = "pod_sandbox_id", r.GetPodSandboxId()
	default:
		return nil
	}
	if id == "" {
		return fmt.Errorf("the request has no %s: %w", field, errdefs.ErrInvalidArgument)
	}
	return nil
}

func (s *Server) admit() error {
	if !s.ready.Load() {
		return fmt.Errorf("server is not initialized yet: %w", errdefs.ErrUnavailable)
	}
	return nil
}

func (s *Server) log(ctx context.Context, method string, started time.Time, err error) {
	name := method[strings.LastIndexByte(method, '/')+1:]
	attrs := []slog.Attr{slog.String("method", name), slog.Duration("took", time.Since(started))}
	st := status.Convert(err)
	level, text := slog.LevelDebug, "request served"
	if err != nil {
		text = "request failed"
		attrs = append(attrs, slog.String("code", st.Code().String()), slog.String("error", st.Message()))
		if s.ready.Load() { // before that, clients ask until it is
			level = levelOf(name, st.Code())
		}
	}
	s.o.Logger.LogAttrs(ctx, level, text, attrs...)
}

// changes are the requests whose failure an operator is to see, whatever the reason: a pod does not
// start, or does not go.
var changes = []string{
	"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "UpdatePodSandboxResources",
	"CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "UpdateContainerResources", "ReopenContainerLog",
	"PullImage", "RemoveImage", "CheckpointContainer", "CheckpointPod", "RestorePod", "UpdateRuntimeConfig",
}

// levelOf is how loud a request that did not succeed is logged. Kubelets ask for what has been
// removed as a matter of course, and a client that gave up knows that.
func levelOf(method string, code codes.Code) slog.Level {
	change := slices.Contains(changes, method)
	switch {
	case code == codes.Unknown, code == codes.Internal, code == codes.DataLoss:
		return slog.LevelWarn
	case code == codes.Canceled && change:
		return slog.LevelInfo
	case code == codes.Canceled, code == codes.NotFound && !change:
		return slog.LevelDebug
	case change:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
