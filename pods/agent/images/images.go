// Package images gets the images of pods as their pull policies say: what is here is used, what is
// not is pulled, once for all who wait for it, not too many at once, and with growing pauses after
// failures. Reasons and messages are a kubelet's.
package images

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Reasons of containers that wait for an image.
const (
	ErrImagePull              = "ErrImagePull"
	ImagePullBackOff          = "ImagePullBackOff"
	ErrImageNeverPull         = "ErrImageNeverPull"
	InvalidImageName          = "InvalidImageName"
	ImageInspectError         = "ImageInspectError"
	RegistryUnavailable       = "RegistryUnavailable"
	SignatureValidationFailed = "SignatureValidationFailed"
)

// shown is how long a failure is shown before it becomes a back-off.
const shown = 2 * time.Second

// CRI are the calls that are needed of an image service.
type CRI interface {
	ImageStatus(context.Context, *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error)
	PullImage(context.Context, *runtime.PullImageRequest) (*runtime.PullImageResponse, error)
}

// Options configure New.
type Options struct {
	CRI CRI
	// Parallel is how many images are pulled at once, at least 1.
	Parallel int
	// Fallback uses an image that is here when policy Always cannot reach the registry at all.
	Fallback bool
	// Unreachable says whether the error of a pull means that; nil looks for errors of the network.
	Unreachable func(error) bool
	Secret      func(namespace, name string) (*corev1.Secret, bool)
	Now         func() time.Time
	// Text is how people read an error of the server; nil is the error's own.
	Text func(error) string
}

// Request is the wish for an image.
type Request struct {
	Pod *corev1.Pod
	// Image is the name in the manifest, Handler the pod's runtime handler.
	Image, Handler string
	Policy         corev1.PullPolicy
	// Sandbox is the configuration of the pod's sandbox, for the server's policies.
	Sandbox *runtime.PodSandboxConfig
	// Tell records an event about whoever wants the image.
	Tell func(kind, reason, message string)
}

// Error is why an image cannot be had now.
type Error struct {
	// Reason and Message are those of the waiting container.
	Reason, Message string
	// Retry is when to ask again, in time from now. Zero: when something has changed.
	Retry time.Duration
	cause error
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap is what the server said, if it was asked.
func (e *Error) Unwrap() error { return e.cause }

// Manager gets images. Its methods may be called at the same time.
type Manager struct {
	o     Options
	slots chan struct{}

	lookups sync.RWMutex // held while it is asked whether an image is here

	mu      sync.Mutex
	flights map[string]*flight
	pauses  map[pauseKey]pause
}

// New returns a manager that has pulled nothing yet.
func New(o Options) *Manager {
	if o.Unreachable == nil {
		o.Unreachable = unreachable
	}
	if o.Text == nil {
		o.Text = error.Error
	}
	return &Manager{o: o, slots: make(chan struct{}, max(o.Parallel, 1)), flights: map[string]*flight{}, pauses: map[pauseKey]pause{}}
}

// Ensure returns the image of a request, after it was pulled if the policy says so.
//
// # Errors
//
// An *Error; the context's, if it ends first.
func (m *Manager) Ensure(ctx context.Context, r Request) (*runtime.Image, error) {
	if _, err := reference.ParseNormalizedNamed(r.Image); err != nil {
		text := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", r.Image, r.Image, err)
		r.Tell(corev1.EventTypeWarning, "InspectFailed", text)
		return nil, &Error{Reason: InvalidImageName, Message: text, cause: err}
	}
	here, err := m.status(ctx, r, r.Image)
	if err != nil {
		return nil, inspectError(ctx, r, err)
	}
	if here != nil && r.Policy != corev1.PullAlways {
		r.Tell(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", r.Image))
		return here, nil
	}
	if r.Policy == corev1.PullNever {
		text := fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image)
		r.Tell(corev1.EventTypeWarning, ErrImageNeverPull, text)
		return nil, &Error{Reason: ErrImageNeverPull, Message: text}
	}
	key := pauseKey{r.Pod.UID, r.Image}
	f, got, err := m.pull(ctx, r)
	if f != nil {
		defer m.leave(f)
	}
	if err == nil {
		m.succeeded(key)
		return got, nil
	}
	if pausing := (*Error)(nil); errors.As(err, &pausing) {
		r.Tell(corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", r.Image))
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if here != nil && m.o.Fallback && m.o.Unreachable(err) {
		r.Tell(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("registry cannot be reached; using the image that is here (%s)", here.GetId()))
		return here, nil
	}
	return nil, m.pullError(r, f, err)
}

// inspectError is that of a name that the server refuses, or of a question that it did not answer.
func inspectError(ctx context.Context, r Request, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errdefs.IsInvalidArgument(err):
		text := fmt.Sprintf("Failed to apply default image tag %q: %v", r.Image, err)
		r.Tell(corev1.EventTypeWarning, "InspectFailed", text)
		return &Error{Reason: InvalidImageName, Message: text, cause: err}
	}
	text := fmt.Sprintf("Failed to inspect image %q: %v", r.Image, err)
	r.Tell(corev1.EventTypeWarning, "InspectFailed", text)
	return &Error{Reason: ImageInspectError, Message: text, Retry: firstPause, cause: err}
}

// pullError reports a failed pull and starts the back-off after it. f is nil for one that was not
// tried.
func (m *Manager) pullError(r Request, f *flight, err error) error {
	reason, message := ErrImagePull, m.o.Text(err)
	for _, known := range []struct{ reason, because string }{
		{RegistryUnavailable, "the registry is unavailable"}, {SignatureValidationFailed, "the signature validation failed"},
	} {
		if detail, found := strings.CutPrefix(message, known.reason); found {
			reason = known.reason
			message = fmt.Sprintf("image pull failed for %s because %s%s", r.Image, known.because, detail)
		}
	}
	r.Tell(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", r.Image, message))
	left := m.failed(f, pauseKey{r.Pod.UID, r.Image}, reason+": "+message)
	return &Error{Reason: reason, Message: message, Retry: min(left, shown), cause: err}
}

// Alone calls f while no request learns that an image is here (IM13).
func (m *Manager) Alone(f func() error) error {
	m.lookups.Lock()
	defer m.lookups.Unlock()
	return f()
}

// status answers nil for an image that is not here.
func (m *Manager) status(ctx context.Context, r Request, image string) (*runtime.Image, error) {
	m.lookups.RLock()
	defer m.lookups.RUnlock()
	resp, err := m.o.CRI.ImageStatus(ctx, &runtime.ImageStatusRequest{
		Image: &runtime.ImageSpec{Image: image, UserSpecifiedImage: r.Image, RuntimeHandler: r.Handler},
	})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return resp.GetImage(), err
}

// credentials are those of the pod's secrets that are meant for the image.
func (m *Manager) credentials(r Request) []*runtime.AuthConfig {
	var ring keyring
	var missing []string
	for _, ref := range r.Pod.Spec.ImagePullSecrets {
		secret, found := m.o.Secret(r.Pod.Namespace, ref.Name)
		if !found {
			missing = append(missing, ref.Name)
			continue
		}
		if err := ring.add(secret); err != nil {
			r.Tell(corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret", err.Error())
		}
	}
	if len(missing) > 0 {
		r.Tell(corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret", fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	return ring.match(r.Image)
}

// Waiting returns the images that a pod may not pull yet, and until when.
func (m *Manager) Waiting(uid types.UID) map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]time.Time{}
	for k, p := range m.pauses {
		if k.uid == uid && p.until().After(m.o.Now()) {
			all[k.image] = p.until()
		}
	}
	return all
}

// unreachable says whether an error is that of a network on which the other side could not be
// reached. What a registry answers is not.
func unreachable(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ETIMEDOUT)
}
