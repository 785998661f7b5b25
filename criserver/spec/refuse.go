package spec

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// invalid returns ErrInvalidArgument for a field that no runtime accepts.
func invalid(field, format string, args ...any) error {
	return refuse(errdefs.ErrInvalidArgument, field, format, args...)
}

// unmet returns ErrFailedPrecondition for a field that this host or sandbox does not support.
func unmet(field, format string, args ...any) error {
	return refuse(errdefs.ErrFailedPrecondition, field, format, args...)
}

// unimplemented returns ErrNotImplemented for a field that this server does not support.
func unimplemented(field, format string, args ...any) error {
	return refuse(errdefs.ErrNotImplemented, field, format, args...)
}

func refuse(class error, field, format string, args ...any) error {
	return inField(field, fmt.Errorf("%w: %w", fmt.Errorf(format, args...), class))
}

// inField names the field that is wrong. Who creates the container or the sandbox names that.
func inField(field string, err error) error { return fmt.Errorf("%s: %w", field, err) }
