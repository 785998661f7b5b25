package probes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

// target is a request that is ready to be sent.
type target struct {
	url     *url.URL
	address string
	text    []byte
	// request is what text was made from, for redirects.
	request *http.Request
}

// newTarget makes the request of an action. The User-Agent is the given one, unless the action's
// headers name their own.
func newTarget(a *corev1.HTTPGetAction, c *corev1.Container, ip, agent string) (*target, error) {
	if a.Protocol != nil && *a.Protocol != corev1.HTTPProtocolHTTP1 {
		return nil, fmt.Errorf("httpGet.protocol: %s is not supported; leave it out to use HTTP/1.1: %w", *a.Protocol, errdefs.ErrInvalidArgument)
	}
	address, err := resolve(a.Host, ip, a.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil { // it is sent as it is, escaped
		u = &url.URL{Path: a.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(a.Scheme)), address
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	request, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	for _, h := range a.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
	}
	if _, own := request.Header["User-Agent"]; !own {
		request.Header.Set("User-Agent", agent)
	}
	if _, own := request.Header["Accept"]; !own {
		request.Header.Set("Accept", "*/*")
	} else if request.Header.Get("Accept") == "" {
		request.Header.Del("Accept")
	}
	request.Host = request.Header.Get("Host")
	return ready(request)
}

// ready writes the text of a request.
func ready(request *http.Request) (*target, error) {
	port := request.URL.Port()
	switch {
	case request.URL.Scheme != "http" && request.URL.Scheme != "https":
		return nil, fmt.Errorf("unsupported protocol scheme %q", request.URL.Scheme)
	case port == "" && request.URL.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	request.Close = true
	var text bytes.Buffer
	if err := request.Write(&text); err != nil {
		return nil, err
	}
	return &target{url: request.URL, request: request, text: text.Bytes(),
		address: net.JoinHostPort(request.URL.Hostname(), port)}, nil
}

// maxRequests is how many requests a chain of redirects may take.
const maxRequests = 10

// next follows a redirect of the answer to a request, the first of which was first; sent is how
// many requests there were. It returns nil if the answer is the last: it is no redirect, or one to
// another host, which is never followed.
func (t *target) next(a *answer, first *target, sent int) (*target, error) {
	switch a.status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	if a.location == "" {
		return nil, nil
	}
	location, err := url.Parse(a.location)
	if err != nil {
		return nil, t.wrap(fmt.Errorf("parse Location header %q: %w", a.location, err))
	}
	u := t.url.ResolveReference(location)
	if u.Hostname() != first.url.Hostname() {
		return nil, nil
	}
	wrap := func(err error) error { return &url.Error{Op: "Get", URL: a.location, Err: err} }
	if sent >= maxRequests {
		return nil, wrap(fmt.Errorf("stopped after %d redirects", maxRequests))
	}
	request := &http.Request{Method: http.MethodGet, URL: u, Header: first.request.Header.Clone()}
	if !location.IsAbs() {
		request.Host = first.request.Host
	}
	if _, own := request.Header["Referer"]; !own && (t.url.Scheme == u.Scheme || t.url.Scheme == "http") {
		request.Header.Set("Referer", t.url.String())
	}
	to, err := ready(request)
	if err != nil {
		return nil, wrap(err)
	}
	return to, nil
}

// wrap gives an error the form that net/http's client has.
func (t *target) wrap(err error) error {
	return &url.Error{Op: "Get", URL: t.url.String(), Err: err}
}

// get sends the request and follows redirects to the same host. The caller closes the answer.
func (w *web) get(ctx context.Context, first *target) (*answer, error) {
	t := first
	for sent := 1; ; sent++ {
		a, err := w.exchange(ctx, t)
		if err != nil {
			return nil, t.wrap(explain(ctx, err))
		}
		next, err := t.next(a, first, sent)
		if err == nil && next == nil {
			return a, nil
		}
		a.close()
		if err != nil {
			return nil, err
		}
		t = next
	}
}

// explain names a time-out as net/http's client does.
func explain(ctx context.Context, err error) error {
	var timeout net.Error
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
	}
	return err
}

// probe returns a check that passes for status codes from 200 to 399.
func (w *web) probe(a *corev1.HTTPGetAction, c *corev1.Container, ip, agent string) (check, error) {
	t, err := newTarget(a, c, ip, agent)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ string, _ time.Duration) outcome {
		answer, err := w.get(ctx, t)
		if err != nil {
			return fail(err.Error())
		}
		defer answer.close()
		body, err := answer.read()
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = errors.New("context deadline exceeded (Client.Timeout or context cancellation while reading body)")
			return outcome{verdict: failure, err: err}
		case err != nil:
			return outcome{verdict: failure, err: err}
		case answer.status < 200 || answer.status >= 400:
			return fail(fmt.Sprintf("HTTP probe failed with statuscode: %d", answer.status))
		case answer.status >= 300:
			return outcome{verdict: warning, output: clip("Probe terminated redirects, Response body: " + body)}
		}
		return outcome{}
	}, nil
}
