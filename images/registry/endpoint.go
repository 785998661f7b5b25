package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/sunaba-project/sunaba/images/registry/credentials"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// maxRedirects is how many redirects a request follows.
const maxRedirects = 5

// maxToken bounds what a token server may answer, in bytes.
const maxToken = 1 << 20

// endpoint is one server that may have a repository's content, as one pull sees it.
type endpoint struct {
	hosts.Config
	ns   string // sent along, so that a mirror of several registries knows which is meant
	auth *authorizer
	// answered is set once it has said anything.
	answered atomic.Bool
	// here is for the server itself, elsewhere for where it redirects to, tokens for its token server.
	here, elsewhere clients
	tokens          *http.Client
}

// clients ask one server.
type clients struct {
	asks   *http.Client
	stores *http.Client // waits longer for an answer
}

// of is the client for a call: before a server answers a PUT, it stores what was sent.
func (c clients) of(method string) *http.Client {
	if method == http.MethodPut {
		return c.stores
	}
	return c.asks
}

func (c *Client) newEndpoint(h hosts.Config, domain string) (*endpoint, error) {
	t, err := c.transportFor(h)
	if err != nil {
		return nil, err
	}
	// Where it redirects to is another server: the same authorities vouch for it,
	// but it is not shown our certificate, and is verified.
	elsewhere, err := c.transportFor(hosts.Config{Host: h.Host, TLS: hosts.TLS{CA: h.TLS.CA}})
	if err != nil {
		return nil, err
	}
	paced := func(t *http.Transport) http.RoundTripper { return pacedTransport{t, c.pacer} }
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	over := func(t transports) clients {
		return clients{&http.Client{Transport: paced(t.asks), CheckRedirect: stay}, &http.Client{Transport: paced(t.stores), CheckRedirect: stay}}
	}
	e := &endpoint{Config: h, here: over(t), elsewhere: over(elsewhere)}
	e.tokens = &http.Client{
		Transport:     tokenTransport{paced(t.asks), e},
		CheckRedirect: sameHostOnly,
		Timeout:       c.options.ConnectTimeout + c.options.StallTimeout,
	}
	if h.Host != hosts.API(domain) {
		e.ns = domain
	}
	e.auth = newAuthorizer(e, credentials.Login{})
	return e, nil
}

func sameHostOnly(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		return errors.New("the token server redirects to another one, which is not followed")
	}
	return nil
}

// tokenTransport carries requests for tokens. It keeps credentials that are for a server with TLS
// from going to one without, and bounds the answer. The server itself is sent its own headers.
type tokenTransport struct {
	inner    http.RoundTripper
	endpoint *endpoint
}

func (t tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	secret := req.Header.Get("Authorization") != "" || req.Method == http.MethodPost
	if t.endpoint.Scheme == "https" && secret && req.URL.Scheme != "https" {
		return nil, fmt.Errorf("%w: the registry wants the credentials sent to %s without TLS", errRefusedHere, req.URL.Host)
	}
	if t.endpoint.is(req.URL) {
		req = req.Clone(req.Context())
		for k, v := range t.endpoint.Header {
			if k != "Authorization" || !secret {
				req.Header[k] = v
			}
		}
	}
	resp, err := t.inner.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxToken), resp.Body}
	}
	return resp, err
}

// transportFor returns the connections to servers with a configuration. Pulls
// share them, as long as the configuration and its files stay what they are.
func (c *Client) transportFor(h hosts.Config) (transports, error) {
	if !h.HasSettings() {
		return c.plain, nil
	}
	dial := cmp.Or(h.DialTimeout, c.options.ConnectTimeout)
	key := fmt.Sprintf("%s %s %s", h.Host, dial, h.TLS.Key())
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.transports[key]; ok {
		return t, nil
	}
	conf, err := h.TLS.Config()
	if err != nil {
		return transports{}, err
	}
	if len(c.transports) >= maxTransports {
		for _, t := range c.transports {
			t.close()
		}
		clear(c.transports)
	}
	t := c.newTransports(conf, dial)
	c.transports[key] = t
	return t, nil
}

// maxTransports bounds what is kept of configurations of the past.
const maxTransports = 64

// transports are the connections of clients.
type transports struct{ asks, stores *http.Transport }

func (t transports) close() {
	t.asks.CloseIdleConnections()
	t.stores.CloseIdleConnections()
}

func (c *Client) newTransports(conf *tls.Config, dial time.Duration) transports {
	t := &http.Transport{
		Proxy:                  func(req *http.Request) (*url.URL, error) { return c.proxy(req.URL) },
		DialContext:            (&net.Dialer{Timeout: dial, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        conf,
		TLSHandshakeTimeout:    dial,
		ResponseHeaderTimeout:  c.options.StallTimeout,
		MaxResponseHeaderBytes: 256 << 10,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		ForceAttemptHTTP2:      true,
		// A connection that has died without a word is closed, so that the next try has another one.
		HTTP2: &http.HTTP2Config{SendPingTimeout: c.options.StallTimeout / 2, PingTimeout: c.options.StallTimeout / 4},
		// A blob's bytes are what they are; only a plain transfer can be resumed.
		DisableCompression: true,
		ReadBufferSize:     64 << 10,
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode < http.StatusInternalServerError {
				return nil // net/http's own error has what it says
			}
			// It may pass, as an error of the network.
			return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: fmt.Errorf("the proxy %s answered %s", proxy.Host, resp.Status)}
		},
	}
	stores := t.Clone()
	stores.ResponseHeaderTimeout = c.options.StoreTimeout
	return transports{t, stores}
}
