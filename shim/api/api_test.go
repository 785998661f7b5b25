package api

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestErrorsKeepTheirClass(t *testing.T) {
	for _, class := range []error{
		errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrInvalidArgument, errdefs.ErrFailedPrecondition,
		errdefs.ErrNotImplemented, errdefs.ErrUnavailable, errdefs.ErrPermissionDenied, errdefs.ErrAborted,
		context.DeadlineExceeded, context.Canceled,
	} {
		before := fmt.Errorf("do thing %q: %w", "x", class)
		after := FromStatus(ToStatus(before))
		if !errors.Is(after, class) {
			t.Errorf("%v lost its class", before)
		}
		if after.Error() != before.Error() {
			t.Errorf("text %q, was %q", after, before)
		}
	}
}

// An error of the shim's disk has the class that one of the server's own disk has.
func TestErrorsOfADisk(t *testing.T) {
	for errno, class := range map[error]error{
		syscall.ENOSPC: errdefs.ErrResourceExhausted, syscall.EDQUOT: errdefs.ErrResourceExhausted, syscall.EROFS: errdefs.ErrFailedPrecondition,
	} {
		if err := FromStatus(ToStatus(fmt.Errorf("mount: %w", errno))); !errors.Is(err, class) || err.Error() != "mount: "+errno.Error() {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

func TestOtherErrors(t *testing.T) {
	if ToStatus(nil) != nil || FromStatus(nil) != nil {
		t.Error("no error became one")
	}
	if got := FromStatus(ToStatus(errors.New("plain"))); got.Error() != "plain" {
		t.Errorf("got %q", got)
	}
	if got := FromStatus(fmt.Errorf("call: %w", ttrpc.ErrClosed)); !errdefs.IsUnavailable(got) {
		t.Errorf("a closed connection is %v", got)
	}
	already := status.Error(codes.NotFound, "x")
	if ToStatus(already) != already {
		t.Error("a status error was changed")
	}
}
