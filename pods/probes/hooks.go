package probes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HookHTTP runs an httpGet hook of a container: any answer is a success. The ip is that of the
// pod, userAgent follows "kube-lifecycle/". It takes as long as the context lets it. The warning,
// if it is not empty, is the message of an event LifecycleHTTPFallback.
//
// # Errors
//
// ErrInvalidArgument for a port that the container does not have; else those of the exchange.
func HookHTTP(ctx context.Context, a *corev1.HTTPGetAction, c *corev1.Container, ip, userAgent string) (warning string, err error) {
	t, err := newTarget(a, c, ip, "kube-lifecycle/"+userAgent)
	if err != nil {
		return "", fmt.Errorf("run httpGet hook of container %q: %w", c.Name, err)
	}
	w := newWeb()
	err = w.hook(ctx, t)
	if errors.Is(err, http.ErrSchemeMismatch) {
		plain, perr := t.plain()
		if perr == nil && w.hook(ctx, plain) == nil {
			return fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", t.url.Host), nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("run httpGet hook of container %q: %w", c.Name, err)
	}
	return "", nil
}

// hook sends a request and drops the answer.
func (w *web) hook(ctx context.Context, t *target) error {
	a, err := w.get(ctx, t)
	if err != nil {
		return err
	}
	a.close()
	return nil
}

// plain is the request without TLS and without credentials.
func (t *target) plain() (*target, error) {
	request := t.request.Clone(t.request.Context())
	request.URL.Scheme = "http"
	request.Header.Del("Authorization")
	return ready(request)
}

// HookSleep runs a sleep hook: it waits for the seconds, until the container ended, which ends the
// hook with success, or until the context is done, whose error it returns.
func HookSleep(ctx context.Context, a *corev1.SleepAction, ended <-chan struct{}) error {
	timer := time.NewTimer(time.Duration(a.Seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("run sleep hook: %w", ctx.Err())
	}
}
