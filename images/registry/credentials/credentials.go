// Package credentials holds what a pull, or the node's own file, knows to log in at a registry.
package credentials

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

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

// Login is what Credentials amount to for one registry.
type Login struct {
	User, Secret string // User "" with a Secret: an identity token
	Bearer       string
	Encoded      string // Auth as given, to be kept out of texts
	Given        bool   // with the pull, not by the node
}

// Login chooses among the fields: a registry token, then user and password,
// then an identity token, then Auth.
func (c Credentials) Login(domain string) (Login, error) {
	if c.ServerAddress != "" && !sameServer(c.ServerAddress, domain) {
		return Login{}, nil
	}
	switch {
	case c.RegistryToken != "":
		return Login{Bearer: c.RegistryToken}, nil
	case c.Username != "":
		return Login{User: c.Username, Secret: c.Password}, nil
	case c.IdentityToken != "":
		return Login{Secret: c.IdentityToken}, nil
	case c.Auth != "":
		user, password, err := decodeAuth(c.Auth)
		if err != nil {
			return Login{}, err
		}
		return Login{User: user, Secret: password, Encoded: c.Auth}, nil
	}
	return Login{}, nil
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
	return CanonicalServer(u.Host) == CanonicalServer(domain)
}

// CanonicalServer returns the one name that a server of a registry goes by.
func CanonicalServer(host string) string {
	host = strings.ToLower(host)
	switch host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

// Secrets returns what must not appear in any text.
func (l Login) Secrets() []string {
	out := slices.DeleteFunc([]string{l.Secret, l.Bearer, l.Encoded}, func(s string) bool { return s == "" })
	if l.Secret != "" {
		out = append(out, url.QueryEscape(l.Secret),
			base64.StdEncoding.EncodeToString([]byte(l.User+":"+l.Secret)))
	}
	return out
}
