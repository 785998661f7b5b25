package images

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flight is a pull for all who wait for the same image with the same credentials.
type flight struct {
	cancel  context.CancelFunc
	waiters int // below Manager.mu, as joined: whether a second one came
	joined  bool

	done chan struct{}
	id   string // set before done is closed, as err and took
	err  error
	took time.Duration
}

// pull pulls an image, or waits for one who does already, and tells how it went.
func (m *Manager) pull(ctx context.Context, r Request) (*runtime.Image, error) {
	began := m.o.Now()
	r.Tell(corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	f, err := m.await(ctx, r, m.credentials(r))
	if err != nil {
		return nil, err
	}
	got, err := m.status(ctx, r, f.id)
	if err == nil && got == nil {
		err = fmt.Errorf("image %q was removed after it was pulled: %w", r.Image, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	r.Tell(corev1.EventTypeNormal, "Pulled", pulledText(r, f, m.o.Now().Sub(began), got))
	return got, nil
}

// Prefetch pulls an image that is not here before the container that wants it is started (SO4).
// That asks by Ensure and joins an active pull. Nothing is tried here during a pause, and a
// failure starts one.
func (m *Manager) Prefetch(ctx context.Context, r Request) {
	if r.Policy == corev1.PullNever {
		return
	}
	here, err := m.status(ctx, r, r.Image)
	key := pauseKey{r.Pod.UID, r.Image}
	if left, _ := m.pausing(key); err != nil || here != nil || left > 0 {
		return
	}
	r.Tell(corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	f, err := m.await(ctx, r, m.credentials(r))
	if f == nil || f.joined { // who joined tells
		return
	}
	if err != nil {
		_ = m.pullError(r, key, err)
		return
	}
	if got, err := m.status(ctx, r, f.id); err == nil && got != nil {
		r.Tell(corev1.EventTypeNormal, "Pulled", pulledText(r, f, f.took, got))
	}
}

func pulledText(r Request, f *flight, waited time.Duration, got *runtime.Image) string {
	return fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		r.Image, f.took.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), got.GetSize())
}

// await joins the flight of an image, or starts it, and waits for its end. A flight that nobody
// waits for any more is cancelled.
func (m *Manager) await(ctx context.Context, r Request, auths []*runtime.AuthConfig) (*flight, error) {
	key, err := flightKey(r, auths)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	f := m.flights[key]
	if f == nil {
		fctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{cancel: cancel, done: make(chan struct{})}
		m.flights[key] = f
		go m.fly(fctx, f, key, r, auths)
	}
	f.joined = f.waiters > 0
	f.waiters++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if f.waiters--; f.waiters == 0 {
			f.cancel()
			if m.flights[key] == f {
				delete(m.flights, key)
			}
		}
	}()
	select {
	case <-f.done:
		return f, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// flightKey is the same for requests that one pull can serve. Credentials are in it as a hash.
func flightKey(r Request, auths []*runtime.AuthConfig) (string, error) {
	data, err := json.Marshal(auths)
	if err != nil {
		return "", fmt.Errorf("pull image %q: %w", r.Image, err)
	}
	return fmt.Sprintf("%s\x00%s\x00%x", r.Image, r.Handler, sha256.Sum256(data)), nil
}

// fly pulls when a slot is free, with one after the other of the credentials and at last with the
// server's own.
func (m *Manager) fly(ctx context.Context, f *flight, key string, r Request, auths []*runtime.AuthConfig) {
	defer func() {
		m.mu.Lock()
		if m.flights[key] == f { // who comes from now on pulls anew
			delete(m.flights, key)
		}
		m.mu.Unlock()
		close(f.done)
	}()
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		f.err = ctx.Err()
		return
	}
	began := m.o.Now()
	spec := &runtime.ImageSpec{Image: r.Image, UserSpecifiedImage: r.Image, RuntimeHandler: r.Handler}
	for _, auth := range append(auths, nil) {
		resp, err := m.o.CRI.PullImage(ctx, &runtime.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: r.Sandbox})
		f.err = err
		if err == nil {
			f.id = resp.GetImageRef()
			break
		}
		if ctx.Err() != nil {
			break
		}
	}
	f.took = m.o.Now().Sub(began)
}
