package registry

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	backoffFirst = 500 * time.Millisecond
	backoffMost  = 30 * time.Second
)

// backoff is the pause before try number n (from 0) is repeated: it doubles from try to try, and
// half of it is random, so that the nodes of a cluster do not come back all at once.
func backoff(n int) time.Duration {
	d := backoffMost
	if n < 6 {
		d = min(d, backoffFirst<<n)
	}
	return d/2 + rand.N(d/2)
}

// retryAfter reads the header of that name: seconds or a date (RFC 9110, 10.2.3).
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if s, err := strconv.ParseUint(v, 10, 32); err == nil {
		return time.Duration(s) * time.Second, true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(now)), true
}

// pacer leaves servers alone for as long as they asked to be.
type pacer struct {
	sleep func(context.Context, time.Duration) error
	most  time.Duration

	mu    sync.Mutex
	until map[string]time.Time // by host
}

func newPacer(sleep func(context.Context, time.Duration) error, most time.Duration) *pacer {
	return &pacer{sleep: sleep, most: most, until: make(map[string]time.Time)}
}

// left returns how long a host wants to be left alone yet.
func (p *pacer) left(host string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := time.Until(p.until[host])
	if d <= 0 {
		delete(p.until, host)
	}
	return d
}

// wait waits until a host may be asked.
func (p *pacer) wait(ctx context.Context, host string) error {
	if d := p.left(host); d > 0 {
		return p.sleep(ctx, d)
	}
	return nil
}

// learn takes note of what an answer asks for. A wish that is too long to be waited for ends that
// one request: others may have credentials with a higher limit.
func (p *pacer) learn(resp *http.Response) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return
	}
	d, ok := retryAfter(resp.Header, time.Now())
	if !ok || d > p.most {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := time.Now().Add(d); at.After(p.until[resp.Request.URL.Host]) {
		p.until[resp.Request.URL.Host] = at
	}
}

// pacedTransport asks no host that wants to be left alone.
type pacedTransport struct {
	inner http.RoundTripper
	pacer *pacer
}

func (t pacedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.pacer.wait(req.Context(), req.URL.Host); err != nil {
		return nil, err
	}
	resp, err := t.inner.RoundTrip(req)
	if err == nil {
		t.pacer.learn(resp)
	}
	return resp, err
}
