package api

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// classes pairs every error class that crosses the socket with its code, most specific first.
var classes = []struct {
	code codes.Code
	err  error
}{
	{codes.NotFound, errdefs.ErrNotFound},
	{codes.AlreadyExists, errdefs.ErrAlreadyExists},
	{codes.InvalidArgument, errdefs.ErrInvalidArgument},
	{codes.FailedPrecondition, errdefs.ErrFailedPrecondition},
	{codes.Unimplemented, errdefs.ErrNotImplemented},
	{codes.Unavailable, errdefs.ErrUnavailable},
	{codes.PermissionDenied, errdefs.ErrPermissionDenied},
	{codes.Aborted, errdefs.ErrAborted},
	{codes.OutOfRange, errdefs.ErrOutOfRange},
	{codes.ResourceExhausted, errdefs.ErrResourceExhausted},
	{codes.ResourceExhausted, syscall.ENOSPC},
	{codes.ResourceExhausted, syscall.EDQUOT},
	{codes.FailedPrecondition, syscall.EROFS},
	{codes.DataLoss, errdefs.ErrDataLoss},
	{codes.Internal, errdefs.ErrInternal},
	{codes.DeadlineExceeded, context.DeadlineExceeded},
	{codes.Canceled, context.Canceled},
}

// ToStatus turns an error into the status error that ttrpc sends. It is called once, at the edge.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Error(codes.Unknown, err.Error())
}

// FromStatus turns what a ttrpc call returned into an error of the class it had on the other side.
// A lost connection is ErrUnavailable.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ttrpc.ErrClosed) {
		return fmt.Errorf("connection to the shim is closed: %w", errdefs.ErrUnavailable)
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, c := range classes {
		if st.Code() == c.code {
			return &remote{text: st.Message(), class: c.err}
		}
	}
	return errors.New(st.Message())
}

// remote is an error of the other side: its text as it was, its class by code.
type remote struct {
	text  string
	class error
}

func (e *remote) Error() string { return e.text }
func (e *remote) Unwrap() error { return e.class }
