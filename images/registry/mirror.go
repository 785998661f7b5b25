package registry

import (
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
	Prefix string // what its repositories' names begin with before the registry's own, "" for nothing
}

// ParseMirror reads an endpoint of the form "http(s)://HOST[:PORT][/PREFIX]".
//
// # Errors
//
// ErrInvalidArgument for anything else; the text does not repeat user and password.
func ParseMirror(endpoint string) (Mirror, error) {
	bad := func(why string) (Mirror, error) {
		return Mirror{}, fmt.Errorf("parse mirror %q: %s: %w", sanitise(endpoint), why, errdefs.ErrInvalidArgument)
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return Mirror{}, fmt.Errorf("parse mirror: not a URL: %w", errdefs.ErrInvalidArgument)
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("it does not start with http:// or https://")
	case u.User != nil:
		return bad("credentials are not taken from a URL")
	case u.Host == "":
		return bad("it names no host")
	case u.RawQuery != "" || u.Fragment != "":
		return bad("it has a query or a fragment")
	}
	return Mirror{Scheme: u.Scheme, Host: u.Host, Prefix: strings.Trim(path.Clean(u.Path), "/.")}, nil
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
func (m Mirror) config() hostConfig {
	return hostConfig{scheme: m.Scheme, host: m.Host, path: path.Join("/v2", m.Prefix), pull: true, resolve: true}
}
