package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
)

const userAgent = "sunaba"

// call is a request for something of a repository.
type call struct {
	method string
	path   string // below the repository
	accept string
	digest digest.Digest // of the content; "" while that is not known
	ranged bool
	from   int64 // with ranged: the first and the last byte
	to     int64

	// push marks the requests of a push: the registry itself is asked, no mirror.
	push  bool
	at    *url.URL   // the address of an upload, in place of path
	query url.Values // with path
	send  *payload   // nil for a request without a body
}

// fits reports whether an endpoint may be asked.
func (c call) fits(e *endpoint) bool {
	switch {
	case c.push:
		return e.Primary
	case c.digest == "":
		return e.Resolve
	}
	return e.Pull
}

// do asks the endpoints in their order, and again after a pause those that had
// trouble, until one answers with a success.
//
// # Errors
//
// That of the last endpoint, which is the registry itself.
func (r *Repository) do(ctx context.Context, c call) (*http.Response, *endpoint, error) {
	failed := make(map[*endpoint]bool)
	for try := 0; ; try++ {
		var last error
		again, told := false, false
		for _, e := range r.order(c) {
			if failed[e] {
				continue
			}
			resp, err := r.ask(ctx, e, c)
			if err == nil {
				return resp, e, nil
			}
			if ctx.Err() != nil {
				return nil, nil, err
			}
			if !e.Primary {
				r.client.options.Logger.Debug("mirror failed to serve", "host", e.Host, "path", c.path, "error", r.wrap(ctx, "ask mirror", err))
			}
			if last == nil || e.Primary {
				last = err
			}
			// Who has never answered is not there; who has, will be again.
			var s *statusError
			answered := errors.As(err, &s)
			if answered && s.again && s.wait > r.client.options.MaxRetryAfter {
				s.most = r.client.options.MaxRetryAfter
			}
			if mayPass(err) && (!isDial(err) || e.answered.Load()) && (!answered || s.most == 0) {
				again = true
				told = told || answered && s.again
			} else {
				failed[e] = true
			}
		}
		switch {
		case last == nil:
			return nil, nil, fmt.Errorf("no server for %q is configured to give this: %w", r.domain, errdefs.ErrFailedPrecondition)
		case !again || try >= r.client.options.Retries:
			if try > 0 {
				last = &triedError{last, try + 1}
			}
			return nil, nil, last
		}
		pause := backoff(try)
		if told { // the pacer waits for what was asked; we add only what spreads callers
			pause = min(pause, time.Second)
		}
		if err := r.client.options.Sleep(ctx, pause); err != nil {
			return nil, nil, err
		}
	}
}

// triedError is an error that did not pass.
type triedError struct {
	error
	times int
}

// Unwrap returns the last error.
func (e *triedError) Unwrap() error { return e.error }

// order returns the endpoints to ask: those that want to be left alone last.
func (r *Repository) order(c call) []*endpoint {
	var now, later []*endpoint
	for _, e := range r.endpoints {
		switch {
		case !c.fits(e) || !r.mayAsk(e, c.digest):
		case r.client.pacer.left(e.Host) > 0:
			later = append(later, e)
		default:
			now = append(now, e)
		}
	}
	return append(now, later...)
}

// ask makes one request, and a second one if credentials are asked for. The answer is a success;
// that to a request with a body has none itself.
func (r *Repository) ask(ctx context.Context, e *endpoint, c call) (*http.Response, error) {
	if c.send == nil {
		return r.exchange(ctx, e, c)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.send = c.send.watched(func() { cancel(errStalled) }, r.client.options.StallTimeout)
	resp, err := r.exchange(ctx, e, c)
	switch {
	case err == nil:
		resp.Body.Close()
	case errors.Is(context.Cause(ctx), errStalled):
		err = errStalled
	}
	return resp, err
}

func (r *Repository) exchange(ctx context.Context, e *endpoint, c call) (*http.Response, error) {
	refusals := make(map[*endpoint][]*http.Response) // by who refused
	for {
		req, err := r.request(ctx, e, c)
		if err != nil {
			return nil, err
		}
		if e.is(req.URL) { // else it is the address of an upload at another server
			asking := ctx
			if e.Primary && !c.push { // not every challenge names the right to pull
				asking = docker.WithScope(ctx, "repository:"+r.path+":pull")
			}
			if err := e.auth.authorize(asking, req); err != nil {
				return nil, err
			}
		}
		resp, err := r.send(e, req, c)
		if err != nil {
			return nil, err
		}
		e.answered.Store(true)
		if resp.StatusCode >= 200 && resp.StatusCode < 300 {
			return resp, nil
		}
		slow := time.AfterFunc(r.client.options.StallTimeout, func() { resp.Body.Close() })
		failure := newStatusError(resp)
		slow.Stop()
		resp.Body.Close()
		failure.push = c.push
		if resp.StatusCode != http.StatusUnauthorized {
			return nil, failure
		}
		who, err := r.asker(ctx, e, resp.Request.URL, c)
		if who == nil {
			return nil, cmp.Or(err, error(failure))
		}
		refusals[who] = append(refusals[who], resp)
		if err := who.auth.challenge(ctx, refusals[who]); errdefs.IsNotImplemented(err) {
			return nil, failure // no challenge that we could meet
		} else if err != nil {
			return nil, err
		}
	}
}

// is reports whether an address is the endpoint's own: another server, and anybody who answers for
// this one without TLS, is not to say where credentials are sent.
func (e *endpoint) is(u *url.URL) bool { return u.Scheme == e.Scheme && u.Host == e.Host }

func (r *Repository) request(ctx context.Context, e *endpoint, c call) (*http.Request, error) {
	u := url.URL{Scheme: e.Scheme, Host: e.Host, Path: strings.TrimSuffix(e.Path, "/") + "/" + r.path + "/" + c.path, RawQuery: c.query.Encode()}
	if e.ns != "" {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+url.Values{"ns": {e.ns}}.Encode(), "&")
	}
	if c.at != nil {
		u = *c.at
	}
	req, err := http.NewRequestWithContext(ctx, c.method, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", c.method, c.path, err)
	}
	if e.is(&u) {
		for k, v := range e.Header {
			req.Header[http.CanonicalHeaderKey(k)] = v
		}
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", userAgent)
	}
	if c.accept != "" {
		req.Header.Set("Accept", c.accept)
	}
	if c.ranged {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", c.from, c.to))
	}
	return req, c.send.attach(req)
}

// send sends a request and follows redirects. Another server sees neither the headers that are
// configured for this one nor its credentials, but those that it has asked for itself.
func (r *Repository) send(e *endpoint, req *http.Request, c call) (*http.Response, error) {
	server := e.here
	if !e.is(req.URL) {
		server = e.elsewhere
	}
	for hops := 0; ; hops++ {
		resp, err := server.of(req.Method).Do(req)
		if err != nil {
			return nil, err
		}
		switch resp.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return resp, nil
		}
		resp.Body.Close()
		to, err := resp.Location()
		if err != nil {
			return nil, fmt.Errorf("the registry redirects nowhere: %w", err)
		}
		if err := mayFollow(req.URL, to, c, hops); err != nil {
			return nil, err
		}
		if c.push && req.Method != http.MethodHead && resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
			return nil, fmt.Errorf("the registry redirects an upload by %s, which would lose its content: %w", resp.Status, errdefs.ErrFailedPrecondition)
		}
		next, err := http.NewRequestWithContext(req.Context(), req.Method, to.String(), nil)
		if err != nil {
			return nil, fmt.Errorf("follow redirect: %w", err)
		}
		if to.Host == req.URL.Host && to.Scheme == req.URL.Scheme {
			next.Header = req.Header
		} else {
			server = e.elsewhere
			next.Header.Set("User-Agent", userAgent)
			for _, k := range []string{"Accept", "Range", "Content-Type", "Content-Range"} {
				if v := req.Header.Get(k); v != "" {
					next.Header.Set(k, v)
				}
			}
			if who := r.known(to); who != nil && !c.push {
				if err := who.auth.authorize(req.Context(), next); err != nil {
					return nil, err
				}
			}
		}
		if err := c.send.attach(next); err != nil {
			return nil, err
		}
		req = next
	}
}

// mayFollow refuses redirects without an end, to what is no web server, and for
// content that is not known by its digest those that leave TLS.
func mayFollow(from, to *url.URL, c call, hops int) error {
	switch {
	case hops >= maxRedirects:
		return fmt.Errorf("the registry redirects more than %d times: %w", maxRedirects, errdefs.ErrFailedPrecondition)
	case to.Scheme != "https" && to.Scheme != "http":
		return fmt.Errorf("the registry redirects to a %q address: %w", to.Scheme, errdefs.ErrFailedPrecondition)
	case from.Scheme == "https" && to.Scheme == "http" && c.digest == "":
		return fmt.Errorf("the registry redirects to %s without TLS: %w", to.Host, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// body is an answer's body that is ended when no byte comes for too long.
type body struct {
	ctx    context.Context
	inner  io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
}

// watch makes a body of an answer to a request with ctx, which cancel ends.
func watch(ctx context.Context, inner io.ReadCloser, cancel context.CancelCauseFunc, stall time.Duration) *body {
	b := &body{ctx: ctx, inner: inner, cancel: cancel, stall: stall, timer: time.AfterFunc(stall, func() { cancel(errStalled) })}
	b.timer.Stop() // it runs only while somebody waits for bytes
	return b
}

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.inner.Read(p)
	b.timer.Stop()
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.inner.Close()
}
