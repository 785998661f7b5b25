package registry

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

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

// authorizer keeps credentials with the host they are for, and gives up after
// one refusal. Everything else is containerd's.
type authorizer struct {
	inner  docker.Authorizer
	host   string
	bearer string
}

func newAuthorizer(client *http.Client, host string, l login) *authorizer {
	return &authorizer{
		host:   host,
		bearer: l.bearer,
		inner: docker.NewDockerAuthorizer(
			docker.WithAuthClient(client),
			docker.WithAuthCreds(func(asking string) (string, string, error) {
				if asking != host {
					return "", "", nil
				}
				return l.user, l.secret, nil
			}),
		),
	}
}

// Authorize sets the header for a request. A redirected request arrives with
// the header of the one before it, which another host must not see.
func (a *authorizer) Authorize(ctx context.Context, req *http.Request) error {
	if req.URL.Host != a.host {
		req.Header.Del("Authorization")
	} else if a.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+a.bearer)
		return nil
	}
	return a.inner.Authorize(ctx, req)
}

// AddResponses learns from a 401. The second one for the same request, or any
// one for a token that was given to us, means that the credentials are refused.
func (a *authorizer) AddResponses(ctx context.Context, responses []*http.Response) error {
	last := responses[len(responses)-1]
	refused := a.bearer != "" && last.Request.URL.Host == a.host
	if n := len(responses); n > 1 {
		before := responses[n-2]
		refused = refused || before.StatusCode == http.StatusUnauthorized &&
			before.Request.Method == last.Request.Method &&
			before.Request.URL.String() == last.Request.URL.String()
	}
	if refused {
		return fmt.Errorf("%w: %w", docker.ErrInvalidAuthorization, errRefused)
	}
	return a.inner.AddResponses(ctx, responses)
}

var errRefused = errors.New("the registry refused the credentials")
