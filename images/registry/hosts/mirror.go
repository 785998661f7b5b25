package hosts

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
)

// Mirror is a server that also has a registry's images.
type Mirror struct {
	Scheme string // "http" or "https"
	Host   string // "host" or "host:port"
	Prefix string // what its repositories' names start with before the registry's own, "" for nothing
}

// ParseMirror reads an endpoint of the form "http(s)://HOST[:PORT][/PREFIX]".
//
// # Errors
//
// ErrInvalidArgument for anything else; the text does not repeat user and password.
func ParseMirror(endpoint string) (Mirror, error) {
	u, err := parseURL(endpoint)
	if errors.Is(err, errNoURL) {
		return Mirror{}, fmt.Errorf("parse mirror: not a URL: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return Mirror{}, fmt.Errorf("parse mirror %q: %w: %w", sanitise(endpoint), err, errdefs.ErrInvalidArgument)
	}
	return Mirror{Scheme: u.Scheme, Host: u.Host, Prefix: strings.Trim(path.Clean(u.Path), "/.")}, nil
}

var errNoURL = errors.New("it is not a URL")

// parseURL reads the address of a server. Its errors do not repeat user and password.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errNoURL
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("it does not start with http:// or https://")
	case u.User != nil:
		return nil, errors.New("credentials are not taken from a URL")
	case u.Host == "":
		return nil, errors.New("it names no host")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("it has a query or a fragment")
	}
	return u, nil
}

// sanitise takes user and password off a URL.
func sanitise(endpoint string) string {
	before, rest, found := strings.Cut(endpoint, "://")
	if !found {
		before, rest = "", endpoint
	} else {
		before += "://"
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = rest[at+1:]
	}
	return before + rest
}

// CheckMirrored refuses what cannot be the registry of a reference.
//
// # Errors
//
// ErrInvalidArgument.
func CheckMirrored(host string) error {
	named, err := reference.ParseNormalizedNamed(host + "/x")
	if err != nil || reference.Domain(named) != host {
		return fmt.Errorf("%q is not the host of a registry as references name it: %w", host, errdefs.ErrInvalidArgument)
	}
	return nil
}

// config returns how a mirror is spoken to.
func (m Mirror) config() Config {
	return Config{Scheme: m.Scheme, Host: m.Host, Path: path.Join("/v2", m.Prefix), Pull: true, Resolve: true}
}
