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

// flight is a pull for all who wait for the same image with the same credentials. One that failed
// can be joined until all who waited for it have left: by then its pauses stand.
type flight struct {
	key    string
	began  time.Time
	cancel context.CancelFunc
	// Below Manager.mu: how many wait, whether a second one came, and for whom the failure started
	// a pause.
	waiters int
	joined  bool
	paused  map[pauseKey]bool

	done chan struct{}
	id   string // set before done is closed, as err and took
	err  error
	took time.Duration
}

// pull pulls an image, or waits for one who does already, and tells how it went. The caller leaves
// the flight, which is nil if it never joined one.
func (m *Manager) pull(ctx context.Context, r Request) (*flight, *runtime.Image, error) {
	if err := m.backOff(r); err != nil {
		return nil, nil, err
	}
	r.Tell(corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	f, err := m.join(ctx, r, m.credentials(r))
	if err != nil {
		return nil, nil, err
	}
	if err := f.wait(ctx); err != nil {
		return f, nil, err
	}
	got, err := m.status(ctx, r, f.id)
	if err == nil && got == nil {
		err = fmt.Errorf("image %q was removed after it was pulled: %w", r.Image, errdefs.ErrNotFound)
	}
	if err != nil {
		return f, nil, err
	}
	r.Tell(corev1.EventTypeNormal, "Pulled", m.pulledText(r, f, got))
	return f, got, nil
}

// Prefetch pulls an image that is not here before the container that wants it is started (SO4).
// That asks by Ensure and joins an active pull. Nothing is tried here during a pause, and a
// failure starts one.
func (m *Manager) Prefetch(ctx context.Context, r Request) {
	if r.Policy == corev1.PullNever {
		return
	}
	here, err := m.status(ctx, r, r.Image)
	if err != nil || here != nil || m.backOff(r) != nil {
		return
	}
	r.Tell(corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	f, err := m.join(ctx, r, m.credentials(r))
	if err != nil {
		return
	}
	defer m.leave(f)
	err = f.wait(ctx)
	if ctx.Err() != nil {
		return
	}
	joined := m.joined(f) // and who joined tells
	if err != nil {
		if joined {
			r.Tell = func(string, string, string) {}
		}
		_ = m.pullError(r, f, err)
		return
	}
	if joined {
		return
	}
	if got, err := m.status(ctx, r, f.id); err == nil && got != nil {
		r.Tell(corev1.EventTypeNormal, "Pulled", m.pulledText(r, f, got))
	}
}

func (m *Manager) pulledText(r Request, f *flight, got *runtime.Image) string {
	return fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		r.Image, f.took.Truncate(time.Millisecond), m.o.Now().Sub(f.began).Truncate(time.Millisecond), got.GetSize())
}

// join joins the flight of an image, or starts it. The caller leaves it.
//
// # Errors
//
// An *Error during a pause.
func (m *Manager) join(ctx context.Context, r Request, auths []*runtime.AuthConfig) (*flight, error) {
	key, err := flightKey(r, auths)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.pausing(r); err != nil { // the failure of another flight came meanwhile
		return nil, err
	}
	f := m.flights[key]
	if f == nil {
		fctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{key: key, began: m.o.Now(), cancel: cancel, paused: map[pauseKey]bool{}, done: make(chan struct{})}
		m.flights[key] = f
		go m.fly(fctx, f, r, auths)
	}
	f.joined = f.waiters > 0
	f.waiters++
	return f, nil
}

// wait waits for the end of a flight.
func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// joined says whether more than one waited for a flight.
func (m *Manager) joined(f *flight) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f.joined
}

// leave leaves a flight. One for which nobody waits any more is cancelled.
func (m *Manager) leave(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		f.cancel()
		m.land(f)
	}
}

// land has who comes from now on pull anew. m.mu is held.
func (m *Manager) land(f *flight) {
	if m.flights[f.key] == f {
		delete(m.flights, f.key)
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
func (m *Manager) fly(ctx context.Context, f *flight, r Request, auths []*runtime.AuthConfig) {
	defer func() {
		if f.err == nil {
			m.mu.Lock()
			m.land(f)
			m.mu.Unlock()
		}
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
