// Package registry fetches manifests and blobs from image registries.
//
// It puts a narrow face on containerd's resolver: one repository, one set of
// credentials, errors that are safe to show. Nothing is remembered between two
// calls of Client.Repository, so that credentials that were refused once do not
// stand in the way of the next.
package registry

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const defaultStallTimeout = time.Minute

// Options configures a Client.
type Options struct {
	// Insecure lists registries spoken to over plain HTTP, as "host" (any port)
	// or "host:port". Loopback hosts always are.
	Insecure []string
	// Mirrors are asked before a registry, in their order; the registry itself is
	// asked last. The key is its host as references name it.
	Mirrors map[string][]Mirror
	// StallTimeout ends a transfer that brings no byte for so long; 0 means one
	// minute.
	StallTimeout time.Duration
}

// Client reaches registries. It is safe for concurrent use.
type Client struct {
	options Options
	http    *http.Client
}

// New returns a Client. It does not touch the network.
func New(o Options) *Client {
	if o.StallTimeout <= 0 {
		o.StallTimeout = defaultStallTimeout
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 10 * time.Second
	t.ResponseHeaderTimeout = o.StallTimeout
	t.MaxIdleConnsPerHost = 8
	return &Client{options: o, http: &http.Client{Transport: t}}
}

// Close gives idle connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Repository is one reference at its registry, seen with one set of credentials.
type Repository struct {
	ref     string
	stall   time.Duration
	secrets []string
	docker  remotes.Resolver
}

// Repository prepares access to a normalised reference ("host/path:tag" or
// "host/path@digest"). It does not touch the network.
//
// # Errors
//
// ErrInvalidArgument for a reference without a host, or credentials that cannot
// be decoded.
func (c *Client) Repository(ref string, creds Credentials) (*Repository, error) {
	named, err := reference.ParseNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("parse image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	domain := reference.Domain(named)
	api := apiHost(domain)
	login, err := creds.login(domain)
	if err != nil {
		return nil, fmt.Errorf("read credentials for %q: %w", domain, err)
	}
	scheme := "https"
	if c.plainHTTP(domain) {
		scheme = "http"
	}
	host := docker.RegistryHost{
		Client:       c.http,
		Authorizer:   newAuthorizer(c.http, api, login),
		Host:         api,
		Scheme:       scheme,
		Path:         "/v2",
		Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve,
	}
	hosts := append(c.mirrors(domain), host)
	return &Repository{
		ref:     ref,
		stall:   c.options.StallTimeout,
		secrets: login.secrets(),
		docker: docker.NewResolver(docker.ResolverOptions{
			Hosts:   func(string) ([]docker.RegistryHost, error) { return hosts, nil },
			Headers: http.Header{"User-Agent": {"sunaba"}},
		}),
	}, nil
}

// Resolve asks what the reference stands for now: one HEAD request where the
// registry answers it fully.
//
// # Errors
//
// See Error. An image that is not there is ErrNotFound.
func (r *Repository) Resolve(ctx context.Context) (ocispec.Descriptor, error) {
	_, desc, err := r.docker.Resolve(quiet(ctx), r.ref)
	if err != nil {
		return ocispec.Descriptor{}, r.wrap(ctx, fmt.Sprintf("resolve %q", r.ref), err)
	}
	return desc, nil
}

// Fetch opens a manifest or blob. The content is not verified here. The reader
// can seek, by asking the registry for a range.
//
// # Errors
//
// See Error; reading gives the same errors. A transfer that stalls ends as an
// unreachable registry does.
func (r *Repository) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadSeekCloser, error) {
	desc.URLs, desc.Data = nil, nil // content comes from the registry that was asked
	ctx, cancel := context.WithCancelCause(ctx)
	b := &body{
		repo: r, ctx: ctx, cancel: cancel,
		doing: fmt.Sprintf("fetch %s of %q", desc.Digest, r.ref),
	}
	fetcher, err := r.docker.Fetcher(quiet(ctx), r.ref)
	if err == nil {
		b.inner, err = fetcher.Fetch(quiet(ctx), desc)
	}
	if err != nil {
		cancel(nil)
		return nil, r.wrap(ctx, b.doing, err)
	}
	b.timer = time.AfterFunc(r.stall, func() { cancel(errStalled) })
	b.timer.Stop() // runs only while somebody waits for bytes
	return b, nil
}

// body reads a blob, ends it when it stalls and makes its errors presentable.
type body struct {
	repo   *Repository
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	inner  io.ReadCloser
	doing  string
}

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.repo.stall)
	n, err := b.inner.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		err = b.repo.wrap(b.ctx, b.doing, err)
	}
	return n, err
}

func (b *body) Seek(offset int64, whence int) (int64, error) {
	s, ok := b.inner.(io.Seeker)
	if !ok {
		return 0, fmt.Errorf("%s: no seeking: %w", b.doing, errdefs.ErrNotImplemented)
	}
	return s.Seek(offset, whence)
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.inner.Close()
}

// plainHTTP reports whether a registry is spoken to without TLS.
func (c *Client) plainHTTP(domain string) bool {
	host := hostname(domain)
	if host == "localhost" {
		return true
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.Contains(c.options.Insecure, domain) || slices.Contains(c.options.Insecure, host)
}

// hostname takes port and brackets off a "host:port".
func hostname(domain string) string {
	if h, _, err := net.SplitHostPort(domain); err == nil {
		return h
	}
	return strings.Trim(domain, "[]")
}

// apiHost is the host that serves a domain's registry API.
func apiHost(domain string) string {
	if domain == "docker.io" {
		return "registry-1.docker.io"
	}
	return domain
}
