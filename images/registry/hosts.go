package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/images/regular"
)

// hostConfig says how one server is spoken to.
type hostConfig struct {
	scheme, host  string
	path          string // root of its API
	pull, resolve bool   // serves content by digest; and says what tags stand for
	primary       bool   // it is the registry itself
	header        http.Header
	tls           tlsFiles
	dialTimeout   time.Duration
}

// hostsFor returns the servers to ask for a registry's images, in their order.
//
// # Errors
//
// ErrFailedPrecondition for a configuration that makes no sense.
func (c *Client) hostsFor(domain string) ([]hostConfig, error) {
	var out []hostConfig
	for _, m := range c.options.Mirrors[domain] {
		out = append(out, m.config())
	}
	own := hostConfig{scheme: "https", host: apiHost(domain), path: "/v2", pull: true, resolve: true, primary: true}
	if c.plainHTTP(domain) {
		own.scheme = "http"
	}
	dir, err := hostDir(c.options.HostsDir, domain)
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
	case server.host == "":
		server.host, server.path, server.pull, server.resolve = own.host, own.path, true, true
		server.scheme, server.primary = own.scheme, true
		if !server.tls.none() {
			server.scheme = "https"
		}
	default:
		// A server named for this registry stands for it; one that is named for
		// all of them is not shown the credentials of each.
		server.primary = server.host == own.host || filepath.Base(dir) != defaultHost
	}
	return append(out, found...), nil
}

// CheckHosts reads every folder of a directory in the layout of certs.d, with
// all files that they name.
//
// # Errors
//
// ErrFailedPrecondition, one for each that makes no sense.
func CheckHosts(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) || root == "" {
		return nil
	}
	if err != nil {
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
			if _, err := h.tls.config(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", filepath.Join(root, e.Name()), err))
			}
		}
	}
	return errors.Join(errs...)
}

// defaultHost is the folder for registries that have none of their own.
const defaultHost = "_default"

// hostDir returns the folder for a registry, "" if there is none. A port is
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

// maxFile bounds the files of the configuration: credentials, hosts.toml and certificates.
const maxFile = 4 << 20

// readHostDir reads a registry's folder: its hosts.toml, or where there is none
// the certificates that lie in it, as Docker has them. The last of what it
// returns is the server, without a host if that is the registry itself.
func readHostDir(dir string) ([]hostConfig, error) {
	file := filepath.Join(dir, "hosts.toml")
	data, err := regular.ReadConfigured(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return certificates(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read registry hosts: %w", err)
	}
	return parseHosts(file, data)
}

// certificates reads a folder in Docker's layout: "*.crt" are authorities,
// "*.cert" with "*.key" our own certificates.
func certificates(dir string) ([]hostConfig, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read registry hosts: %w", err)
	}
	var h hostConfig
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch path.Ext(e.Name()) {
		case ".crt":
			h.tls.ca = append(h.tls.ca, name)
		case ".cert":
			key := strings.TrimSuffix(name, ".cert") + ".key"
			if _, err := os.Stat(key); err != nil {
				key = ""
			}
			h.tls.client = append(h.tls.client, [2]string{name, key})
		}
	}
	return []hostConfig{h}, nil
}
