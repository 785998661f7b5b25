// Package hosts says which servers have the images of a registry, and how they are spoken to.
package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/host/regular"
)

// Config says how one server is spoken to.
type Config struct {
	Scheme, Host  string
	Path          string // root of its API
	Pull, Resolve bool   // serves content by digest; and says what tags stand for
	Primary       bool   // it is the registry itself
	Header        http.Header
	TLS           TLS
	DialTimeout   time.Duration
}

// HasSettings reports whether connections to the server are made differently from others.
func (h Config) HasSettings() bool { return !h.TLS.none() || h.DialTimeout != 0 }

// Sources are where servers are configured.
type Sources struct {
	// Mirrors are asked before what Dir names for a registry.
	Mirrors map[string][]Mirror
	// Dir is a directory in the layout of containerd's certs.d; "" means none.
	Dir string
	// Insecure lists registries spoken to over plain HTTP, as "host" (any port) or "host:port".
	Insecure []string
}

// For returns the servers to ask for a registry's images, in their order.
//
// # Errors
//
// ErrFailedPrecondition for a configuration that makes no sense.
func (s Sources) For(domain string) ([]Config, error) {
	var out []Config
	for _, m := range s.Mirrors[domain] {
		out = append(out, m.config())
	}
	own := Config{Scheme: "https", Host: API(domain), Path: "/v2", Pull: true, Resolve: true, Primary: true}
	if s.PlainHTTP(domain) {
		own.Scheme = "http"
	}
	dir, err := hostDir(s.Dir, domain)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return append(out, own), nil
	}
	found, err := readHostDir(dir)
	if err != nil {
		return nil, err
	}
	server := &found[len(found)-1]
	switch {
	case server.Host == "":
		server.Host, server.Path, server.Pull, server.Resolve = own.Host, own.Path, true, true
		server.Scheme, server.Primary = own.Scheme, true
		if !server.TLS.none() {
			server.Scheme = "https"
		}
	default:
		// A server named for this registry stands for it; one that is named for
		// all of them is not shown the credentials of each.
		server.Primary = server.Host == own.Host || filepath.Base(dir) != defaultHost
	}
	return append(out, found...), nil
}

// PlainHTTP reports whether a registry is spoken to without TLS.
func (s Sources) PlainHTTP(domain string) bool {
	host := (&url.URL{Host: domain}).Hostname()
	if host == "localhost" {
		return true
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.Contains(s.Insecure, domain) || slices.Contains(s.Insecure, host)
}

// API is the host that serves a domain's registry API.
func API(domain string) string {
	if domain == "docker.io" {
		return "registry-1.docker.io"
	}
	return domain
}

// Check reads every folder of a directory in the layout of certs.d, with all files that they name.
//
// # Errors
//
// ErrFailedPrecondition, one for each that makes no sense.
func Check(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %q: %w", root, err)
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		hosts, err := readHostDir(filepath.Join(root, e.Name()))
		errs = append(errs, err)
		for _, h := range hosts {
			if _, err := h.TLS.Config(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", filepath.Join(root, e.Name()), err))
			}
		}
	}
	return errors.Join(errs...)
}

// defaultHost is the folder for registries that have none of their own.
const defaultHost = "_default"

// hostDir returns the folder for a registry, "" without one. A port is
// written "_5000_", or as it is.
func hostDir(root, domain string) (string, error) {
	if root == "" {
		return "", nil
	}
	names := []string{domain, defaultHost}
	if i := strings.LastIndex(domain, ":"); i > 0 {
		names = append([]string{domain[:i] + "_" + domain[i+1:] + "_"}, names...)
	}
	for _, n := range names {
		dir := filepath.Join(root, n)
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("read %q: %w", root, err)
		}
	}
	return "", nil
}

// maxFile bounds the files of the configuration: hosts.toml and certificates.
const maxFile = 4 << 20

// readHostDir reads a registry's folder: its hosts.toml, or without one, or with
// an empty one, the certificates that lie in it, as Docker has them. The last of what it
// returns is the server, without a host if that is the registry itself.
func readHostDir(dir string) ([]Config, error) {
	file := filepath.Join(dir, "hosts.toml")
	data, err := regular.ReadConfigured(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return certificates(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read registry hosts: %w", err)
	}
	return parseHosts(file, data)
}

// certificates reads a folder in Docker's layout: "*.crt" are authorities,
// "*.cert" with "*.key" our own certificates.
func certificates(dir string) ([]Config, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read registry hosts: %w", err)
	}
	var h Config
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch path.Ext(e.Name()) {
		case ".crt":
			h.TLS.CA = append(h.TLS.CA, name)
		case ".cert":
			key := strings.TrimSuffix(name, ".cert") + ".key"
			if _, err := os.Stat(key); err != nil {
				key = ""
			}
			h.TLS.Client = append(h.TLS.Client, [2]string{name, key})
		}
	}
	return []Config{h}, nil
}
