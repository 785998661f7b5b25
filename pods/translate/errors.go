package translate

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// ReasonCreateConfig is the waiting reason of a container whose configuration cannot be made.
const ReasonCreateConfig = "CreateContainerConfigError"

// ConfigError says why a container waits: Reason stands in its status, and Err is the message. A
// missing ConfigMap, Secret or key is errdefs.ErrNotFound, so that it is retried when objects
// change.
type ConfigError struct {
	Reason string
	Err    error
}

// Error is the message alone, as a kubelet writes it.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// configError marks an error, which is not nil, as one of the configuration.
func configError(err error) error { return &ConfigError{Reason: ReasonCreateConfig, Err: err} }

// message is an error whose text is a kubelet's, to the letter, and which has a class.
type message struct {
	text  string
	class error
}

func (m *message) Error() string { return m.text }

func (m *message) Unwrap() error { return m.class }

func classed(class error, format string, args ...any) error {
	return &message{text: fmt.Sprintf(format, args...), class: class}
}

// invalid refuses a field of the manifest.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %w", field, fmt.Errorf(format, args...), errdefs.ErrInvalidArgument)
}
