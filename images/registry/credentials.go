package registry

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
)

// Credentials are the six fields of a CRI AuthConfig. They are used for one
// pull, and neither logged nor kept.
type Credentials struct {
	Username, Password string
	// Auth is base64 of "username:password".
	Auth string
	// ServerAddress, when set, must name the registry, or nothing is used.
	ServerAddress string
	// IdentityToken is exchanged for an access token at the token server.
	IdentityToken string
	// RegistryToken is a bearer token sent to the registry as it is.
	RegistryToken string
}

// String hides the credentials from texts that a careless %v would put them in.
func (Credentials) String() string { return "(credentials)" }

// GoString does the same for %#v.
func (Credentials) GoString() string { return "(credentials)" }

// LogValue does the same for slog.
func (Credentials) LogValue() slog.Value { return slog.StringValue("(credentials)") }

// login is what Credentials amount to for one registry.
type login struct {
	user, secret string // user "" with a secret: an identity token
	bearer       string
	encoded      string // Auth as given, to be kept out of texts
	given        bool   // with the pull, not by the node
}

// login chooses among the fields: a registry token, then user and password,
// then an identity token, then Auth.
func (c Credentials) login(domain string) (login, error) {
	if c.ServerAddress != "" && !sameServer(c.ServerAddress, domain) {
		return login{}, nil
	}
	switch {
	case c.RegistryToken != "":
		return login{bearer: c.RegistryToken}, nil
	case c.Username != "":
		return login{user: c.Username, secret: c.Password}, nil
	case c.IdentityToken != "":
		return login{secret: c.IdentityToken}, nil
	case c.Auth != "":
		user, password, err := decodeAuth(c.Auth)
		if err != nil {
			return login{}, err
		}
		return login{user: user, secret: password, encoded: c.Auth}, nil
	}
	return login{}, nil
}

// decodeAuth reads base64 of "username:password". Docker's own tools pad the
// password with NULs, which are no part of it.
func decodeAuth(auth string) (user, password string, err error) {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(auth, "="))
	if err != nil {
		return "", "", fmt.Errorf("decode auth: not base64: %w", errdefs.ErrInvalidArgument)
	}
	user, password, ok := strings.Cut(string(raw), ":")
	if !ok {
		return "", "", fmt.Errorf(`decode auth: not of the form "username:password": %w`, errdefs.ErrInvalidArgument)
	}
	return user, strings.TrimRight(password, "\x00"), nil
}

// sameServer compares a server address, with or without scheme and path, with
// the domain of a reference. Docker Hub goes by several names.
func sameServer(address, domain string) bool {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	return canonicalServer(u.Host) == canonicalServer(domain)
}

func canonicalServer(host string) string {
	host = strings.ToLower(host)
	switch host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

// secrets returns what must not appear in any text.
func (l login) secrets() []string {
	var out []string
	for _, s := range []string{l.secret, l.bearer, l.encoded} {
		if s != "" {
			out = append(out, s)
		}
	}
	if l.secret != "" {
		out = append(out, url.QueryEscape(l.secret),
			base64.StdEncoding.EncodeToString([]byte(l.user+":"+l.secret)))
	}
	return out
}

// Fingerprint tells the credentials given to Client.Repository apart from others
// for the same registry, without giving them away to who does not know the salt.
// It is "" if there are none.
func (r *Repository) Fingerprint(salt []byte) string {
	for _, l := range r.logins {
		if l.given {
			h := hmac.New(sha256.New, salt)
			for _, part := range []string{canonicalServer(r.domain), l.user, l.secret, l.bearer} {
				fmt.Fprintf(h, "%d:%s,", len(part), part)
			}
			return hex.EncodeToString(h.Sum(nil))
		}
	}
	return ""
}

// authorizer keeps credentials with the server they are for, and gives up after
// one refusal. The token protocol is containerd's.
type authorizer struct {
	endpoint *endpoint
	login    login
	asked    atomic.Bool // the credentials have been asked for, or sent

	mu    sync.Mutex
	inner docker.Authorizer
}

func newAuthorizer(e *endpoint, l login) *authorizer {
	a := &authorizer{endpoint: e, login: l}
	a.reset()
	a.asked.Store(l.bearer != "")
	return a
}

// reset forgets tokens and failures to get one.
func (a *authorizer) reset() {
	inner := docker.NewDockerAuthorizer(
		docker.WithAuthClient(a.endpoint.tokens),
		docker.WithAuthHeader(http.Header{"User-Agent": {userAgent}}),
		docker.WithAuthCreds(func(asking string) (string, string, error) {
			if asking != a.endpoint.host {
				return "", "", nil
			}
			return a.login.user, a.login.secret, nil
		}),
	)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inner = inner
}

func (a *authorizer) current() docker.Authorizer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inner
}

// authorize sets the header of a request to the authorizer's own server.
func (a *authorizer) authorize(ctx context.Context, req *http.Request) error {
	if a.login.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+a.login.bearer)
		return nil
	}
	err := a.current().Authorize(quiet(ctx), req)
	if err != nil {
		a.reset() // it would answer the same error for ever
	}
	return err
}

// challenge learns from a 401 of the authorizer's own server. The second one for
// the same request, or any one for a token that was given to us, means that the
// credentials are refused.
func (a *authorizer) challenge(ctx context.Context, responses []*http.Response) error {
	a.asked.Store(true)
	if a.login.bearer != "" || len(responses) > 1 {
		return fmt.Errorf("%w: %w", docker.ErrInvalidAuthorization, errRefused)
	}
	return a.current().AddResponses(quiet(ctx), responses)
}

var (
	errRefused     = errors.New("the registry refused the credentials")
	errRefusedHere = errors.New("refused to send the credentials")
)
