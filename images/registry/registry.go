// Package registry fetches manifests and blobs from image registries, and pushes them.
//
// A Repository is one reference seen with one set of credentials. It knows the servers that may
// have its content, mirrors first and the registry itself last (see Options), and asks them in that
// order. Authorization is containerd's implementation of the token protocol; requests, retries and
// the choice of credentials are this package's.
//
// # Bad links
//
// A request that fails for a reason that may pass (no connection, a connection that breaks off or
// stalls, 408, 429, 5xx) is retried, after a jittered, exponentially growing pause or when the
// server's Retry-After says. A blob continues at the byte where its transfer ended, as long as each
// try brings bytes.
//
// # Pushes
//
// A push asks the registry itself, no mirror. A blob of one chunk is one request; a larger one
// continues at the byte that the registry has. What an upload's address leads to at another server
// sees neither credentials nor configured headers.
//
// # Credentials
//
// Credentials are not kept between two calls of Client.Repository: a refused one does not affect
// the next call. A pull's credentials are sent only to the registry itself and its token server:
// not to mirrors or redirect targets, which get those of the node's own file.
package registry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/net/http/httpproxy"

	"github.com/sunaba-project/sunaba/host/clock"
	"github.com/sunaba-project/sunaba/images/registry/credentials"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// Defaults of Options.
const (
	DefaultConnectTimeout = 30 * time.Second
	DefaultStallTimeout   = time.Minute
	DefaultStoreTimeout   = 10 * time.Minute
	DefaultRetries        = 5
	DefaultMaxRetryAfter  = 2 * time.Minute
	DefaultMaxFetches     = 8
	DefaultRangeThreshold = 32 << 20
	DefaultRangeSize      = 4 << 20
	DefaultRangeMemory    = 32 << 20
	DefaultChunk          = 64 << 20
)

// Credentials are those of one pull.
type Credentials = credentials.Credentials

// Options configures a Client. The zero value of every field has a meaning.
type Options struct {
	// Insecure lists registries spoken to over plain HTTP, as "host" (any port)
	// or "host:port". Loopback hosts always are, unless HostsDir says otherwise.
	Insecure []string
	// Mirrors are asked before what HostsDir names for a registry, in their order; the registry
	// itself is asked last. The key is its host as references name it.
	Mirrors map[string][]hosts.Mirror
	// HostsDir is a directory in the layout of containerd's certs.d: for a
	// registry, a folder "HOST", "HOST_PORT_" or "_default" with a hosts.toml or
	// certificates. It is read anew for every pull. "" means none.
	HostsDir string
	// CredentialsFile is the node's Docker configuration, whose credentials are used where a pull
	// brings none. It is read anew for every pull; one that does not exist is empty. "" means none.
	CredentialsFile string

	// ConnectTimeout bounds the making of a connection and TLS's part of it.
	ConnectTimeout time.Duration
	// StallTimeout ends a request that brings no byte for so long.
	StallTimeout time.Duration
	// StoreTimeout is how long a registry may take to answer once all of a blob or manifest was sent:
	// it checks and moves what it has got.
	StoreTimeout time.Duration
	// Retries is how often in a row a request is retried; negative is never.
	Retries int
	// MaxRetryAfter is the longest Retry-After that is waited for; a longer one counts as a refusal.
	MaxRetryAfter time.Duration

	// MaxFetches is how many blobs are fetched at a time, by all pulls together:
	// in equal shares for registries and pulls while more than that wait.
	MaxFetches int
	// RangeThreshold is the size, in bytes, from which on a blob is fetched in
	// parts of RangeSize bytes, several at a time; negative is never. Parts that
	// wait for those before them take RangeMemory bytes at most, in all.
	RangeThreshold, RangeSize, RangeMemory int64
	// Chunk is how many bytes of a blob one request uploads.
	Chunk int64

	// Sleep waits between tries; nil is the real clock. It returns the
	// context's error if that ends first.
	Sleep  func(context.Context, time.Duration) error
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	orDefault(&o.ConnectTimeout, DefaultConnectTimeout)
	orDefault(&o.StallTimeout, DefaultStallTimeout)
	orDefault(&o.StoreTimeout, DefaultStoreTimeout)
	orDefault(&o.MaxRetryAfter, DefaultMaxRetryAfter)
	orDefault(&o.MaxFetches, DefaultMaxFetches)
	orDefault(&o.RangeSize, DefaultRangeSize)
	orDefault(&o.RangeMemory, DefaultRangeMemory)
	orDefault(&o.Chunk, DefaultChunk)
	o.Retries = cmp.Or(o.Retries, DefaultRetries)
	o.RangeThreshold = cmp.Or(o.RangeThreshold, DefaultRangeThreshold)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Sleep == nil {
		o.Sleep = clock.Sleep
	}
	return o
}

// orDefault sets a field that is not above zero.
func orDefault[N int | int64 | time.Duration](field *N, value N) {
	if *field <= 0 {
		*field = value
	}
}

// Client reaches registries. It is safe for concurrent use.
type Client struct {
	options Options
	proxy   func(*url.URL) (*url.URL, error)
	pacer   *pacer
	turns   *turns
	parts   *partPool

	mu         sync.Mutex
	transports map[string]transports // by transportKey
	plain      transports            // to servers without a configuration
}

// New returns a Client. It does not touch the network. Proxies are those of the
// environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY) as it is now.
func New(o Options) *Client {
	o = o.withDefaults()
	c := &Client{
		options:    o,
		proxy:      httpproxy.FromEnvironment().ProxyFunc(),
		pacer:      newPacer(o.Sleep, o.MaxRetryAfter),
		turns:      newTurns(o.MaxFetches),
		parts:      newPartPool(o.RangeSize, o.RangeMemory),
		transports: make(map[string]transports),
	}
	c.plain = c.newTransports(nil, o.ConnectTimeout)
	return c
}

// Close closes idle connections.
func (c *Client) Close() {
	c.turns.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plain.close()
	for _, t := range c.transports {
		t.close()
	}
}

// Repository is one reference at its registry, seen with one set of credentials.
type Repository struct {
	client    *Client
	ref       string
	domain    string
	path      string // of the repository, below its host
	tag       string // "" for a reference by digest
	digest    digest.Digest
	endpoints []*endpoint
	keys      *credentials.Keychain // the node's

	mu        sync.Mutex
	strangers []*endpoint         // servers redirected to that have asked for credentials
	logins    []credentials.Login // to try, if the first of them is refused, with the registry itself
	secrets   []string
	manifests map[digest.Digest][]byte // read while resolving
	served    map[digest.Digest]string // host by content
	refused   map[digest.Digest][]*endpoint
}

// Repository prepares access to a normalised reference ("host/path:tag" or "host/path@digest"). It
// does not touch the network, but may run the credential helper that the node's file names.
//
// # Errors
//
// ErrInvalidArgument for a reference without a host, or credentials that cannot
// be decoded; ErrFailedPrecondition for a hosts.toml that makes no sense.
func (c *Client) Repository(ctx context.Context, ref string, creds Credentials) (*Repository, error) {
	named, err := reference.ParseNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("parse image reference %q: %w: %w", ref, err, errdefs.ErrInvalidArgument)
	}
	r := &Repository{
		client: c, ref: ref, domain: reference.Domain(named), path: reference.Path(named),
		manifests: make(map[digest.Digest][]byte),
		served:    make(map[digest.Digest]string),
		refused:   make(map[digest.Digest][]*endpoint),
	}
	if d, ok := named.(reference.Digested); ok {
		r.digest = d.Digest()
	} else if t, ok := named.(reference.Tagged); ok {
		r.tag = t.Tag()
	} else {
		r.tag = "latest"
	}
	given, err := creds.Login(r.domain)
	if err != nil {
		return nil, fmt.Errorf("read credentials for %q: %w", r.domain, err)
	}
	servers, err := hosts.Sources{Mirrors: c.options.Mirrors, Dir: c.options.HostsDir, Insecure: c.options.Insecure}.For(r.domain)
	if err != nil {
		return nil, fmt.Errorf("find servers for %q: %w", r.domain, err)
	}
	r.keys = credentials.Open(c.options.CredentialsFile, c.options.Logger)
	for _, h := range servers {
		e, err := c.newEndpoint(h, r.domain)
		if err != nil {
			return nil, fmt.Errorf("prepare server %q for %q: %w", h.Host, r.domain, err)
		}
		r.endpoints = append(r.endpoints, e)
		switch {
		case h.Primary && given != (credentials.Login{}):
			given.Given = true
			r.logins = []credentials.Login{given}
		case h.Primary:
			r.logins = r.keys.Logins(ctx, r.domain+"/"+r.path)
		default:
			r.useNode(ctx, e)
		}
	}
	r.useLogin()
	return r, nil
}

// useNode makes a server that is not the registry see what the node has for it.
func (r *Repository) useNode(ctx context.Context, e *endpoint) {
	if found := r.keys.Logins(ctx, e.Host+"/"+r.path); len(found) > 0 {
		e.auth = newAuthorizer(e, found[0])
		r.mu.Lock()
		defer r.mu.Unlock()
		r.secrets = append(r.secrets, found[0].Secrets()...)
	}
}

// asker is who asks for credentials in an answer to a request at e: e itself, or a server that e
// has redirected to; nil for one that is not to be given any.
func (r *Repository) asker(ctx context.Context, e *endpoint, at *url.URL, c call) (*endpoint, error) {
	switch who := r.known(at); {
	case e.is(at):
		return e, nil
	case c.push, e.Scheme == "https" && at.Scheme != "https":
		return nil, nil
	case who != nil:
		return who, nil
	}
	who, err := r.client.newEndpoint(hosts.Config{Scheme: at.Scheme, Host: at.Host, TLS: hosts.TLS{CA: e.TLS.CA}}, r.domain)
	if err != nil {
		return nil, err
	}
	// Only the node's own configuration has its credentials sent without TLS.
	if s := (hosts.Sources{Insecure: r.client.options.Insecure}); at.Scheme == "https" || s.PlainHTTP(at.Host) {
		r.useNode(ctx, who)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.strangers = append(r.strangers, who); len(r.strangers) > maxRedirects { // there is no end of names
		return nil, nil
	}
	return who, nil
}

// known returns the server at an address that has been redirected to and asks for credentials.
func (r *Repository) known(at *url.URL) *endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.strangers, func(e *endpoint) bool { return e.is(at) }); i >= 0 {
		return r.strangers[i]
	}
	return nil
}

// useLogin makes the registry itself see the first of the logins.
func (r *Repository) useLogin() {
	l := credentials.Login{}
	if len(r.logins) > 0 {
		l = r.logins[0]
	}
	r.secrets = append(r.secrets, l.Secrets()...)
	for _, e := range r.endpoints {
		if e.Primary {
			e.auth = newAuthorizer(e, l)
		}
	}
}

// nextLogin switches to the next of the node's logins, if there is one.
func (r *Repository) nextLogin() bool {
	if len(r.logins) < 2 {
		return false
	}
	r.logins = r.logins[1:]
	r.useLogin()
	return true
}

// Access says whose credentials opened a repository.
type Access int

const (
	// Open is a repository that did not ask for credentials, or needs none.
	Open Access = iota
	// ByNode is one that accepted the node's credentials.
	ByNode
	// ByPull is one that accepted the credentials given to Client.Repository.
	ByPull
)

// Access returns whose credentials the servers have asked for and accepted so far. It is valid
// after Resolve.
func (r *Repository) Access() Access {
	access := Open
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range slices.Concat(r.endpoints, r.strangers) {
		switch l := e.auth.login; {
		case !e.auth.asked.Load() || l == (credentials.Login{}):
		case l.Given:
			return ByPull
		default:
			access = ByNode
		}
	}
	return access
}

// Served returns which server each manifest and blob came from, as "host" or "host:port".
func (r *Repository) Served() map[digest.Digest]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.served)
}

func (r *Repository) noteServed(d digest.Digest, e *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served[d] = e.Host
}

// Refuse records that the content fetched as d does not match it. The server that served it is not
// used again. Refuse reports whether another server is left.
func (r *Repository) Refuse(d digest.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	host, ok := r.served[d]
	if !ok {
		return false // no server served it
	}
	left := false
	for _, e := range r.endpoints {
		if e.Host == host {
			r.refused[d] = append(r.refused[d], e)
		} else if e.Pull && !slices.Contains(r.refused[d], e) {
			left = true
		}
	}
	delete(r.served, d)
	if left {
		r.client.options.Logger.Warn("mirror served wrong content; trying another server", "host", host, "digest", d)
	}
	return left
}

func (r *Repository) mayAsk(e *endpoint, d digest.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.Contains(r.refused[d], e)
}

// doing describes the fetching of content for errors.
func (r *Repository) doing(desc ocispec.Descriptor) string {
	return fmt.Sprintf("fetch %s of %q", desc.Digest, r.ref)
}
