package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-project/sunaba/tests/node"
)

// Distribution is a running docker-registry, the registry that most others are
// made of.
type Distribution struct {
	Host string // "127.0.0.1:PORT"
	URL  string

	cmd *exec.Cmd
	log string
}

// DistributionOptions says how a docker-registry is to be.
type DistributionOptions struct {
	Dir string // for its files; it must exist
	// Data is where its content lies; "" is below Dir. One with another kind of
	// authorization may serve the same.
	Data string
	// Cert and Key are PEM files, to speak TLS.
	Cert, Key string
	// Htpasswd is a file of users, for basic authorization.
	Htpasswd string
	// Realm is a token server's URL, and TokenCert the PEM file with its
	// certificate, for authorization by tokens.
	Realm, TokenCert string
}

// TokenService and TokenIssuer are the names that a Distribution expects of its
// tokens.
const (
	TokenService = "sunaba-test"
	TokenIssuer  = "sunaba-test-tokens"
)

// findDistribution finds the program: installed, or where tests/setup.sh has put
// it, which is below the folder that holds go.mod.
func findDistribution() (string, error) {
	if path, err := exec.LookPath("docker-registry"); err == nil {
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".cache/docker-registry/usr/bin/docker-registry")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("docker-registry is missing: run tests/setup.sh --tests")
}

// StartDistribution starts a docker-registry on loopback and waits until it
// answers.
func StartDistribution(ctx context.Context, o DistributionOptions) (*Distribution, error) {
	program, err := findDistribution()
	if err != nil {
		return nil, err
	}
	host, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(o.Dir, "config.yml")
	if err := os.WriteFile(config, []byte(o.config(host)), 0o600); err != nil {
		return nil, err
	}
	d := &Distribution{Host: host, URL: "http://" + host, log: filepath.Join(o.Dir, "log")}
	if o.Cert != "" {
		d.URL = "https://" + host
	}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(program, "serve", config)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d.cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start docker-registry: %w", err)
	}
	if err := d.wait(ctx); err != nil {
		d.Close()
		out, _ := os.ReadFile(d.log)
		return nil, fmt.Errorf("%w; it says:\n%s", err, out)
	}
	return d, nil
}

func freeAddress() (string, error) {
	port, err := node.FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

func (o DistributionOptions) config(host string) string {
	var c strings.Builder
	data := o.Data
	if data == "" {
		data = filepath.Join(o.Dir, "data")
	}
	fmt.Fprintf(&c, "version: 0.1\nlog: {level: warn, accesslog: {disabled: true}}\nstorage:\n  filesystem: {rootdirectory: %q}\n", data)
	fmt.Fprintf(&c, "http:\n  addr: %s\n  secret: test\n", host)
	if o.Cert != "" {
		fmt.Fprintf(&c, "  tls: {certificate: %q, key: %q}\n", o.Cert, o.Key)
	}
	switch {
	case o.Htpasswd != "":
		fmt.Fprintf(&c, "auth:\n  htpasswd: {realm: test, path: %q}\n", o.Htpasswd)
	case o.Realm != "":
		fmt.Fprintf(&c, "auth:\n  token: {realm: %q, service: %s, issuer: %s, rootcertbundle: %q}\n", o.Realm, TokenService, TokenIssuer, o.TokenCert)
	}
	return c.String()
}

// wait waits until the port is served.
func (d *Distribution) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.Host)
		if err == nil {
			return c.Close()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("docker-registry does not answer: %w", err)
		}
	}
}

// Close ends the registry.
func (d *Distribution) Close() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := d.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}
