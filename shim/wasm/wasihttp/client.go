package wasihttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi/dns"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
)

const (
	// defaultTimeout is each of the three timeouts of a request for which the guest has set none.
	defaultTimeout = 10 * time.Minute

	// maxRequests bounds the requests that the guests of a container have in progress.
	maxRequests = 256

	// maxRoots bounds a file of certificates, in bytes.
	maxRoots = 4 << 20
)

// rootFiles are where systems keep the certificates of their authorities.
var rootFiles = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem", "etc/pki/tls/cacert.pem",
	"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "etc/ssl/cert.pem",
}

// ClientConfig says what guests see of names and authorities.
type ClientConfig struct {
	// Root is a descriptor of the guest's "/", -1 for none. It stays the caller's, and open until
	// the Client is closed.
	Root int
	// CertFile is the guest's SSL_CERT_FILE, "" for none.
	CertFile string
}

// Client sends the requests of guests. All instances of a container share it and its connections.
// It is the Extension of their canonical.Instance; without one, requests are denied.
type Client struct {
	config    ClientConfig
	transport *http.Transport
	slots     chan struct{} // one for each request in progress
	roots     func() *x509.CertPool
}

// NewClient makes a Client.
func NewClient(config ClientConfig) *Client {
	cl := &Client{config: config, slots: make(chan struct{}, maxRequests)}
	cl.roots = sync.OnceValue(cl.readRoots)
	cl.transport = &http.Transport{
		DialContext:            cl.dial,
		DialTLSContext:         cl.dialTLS,
		DisableCompression:     true,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: fields.Max,
	}
	return cl
}

// Close closes the connections that are idle.
func (cl *Client) Close() { cl.transport.CloseIdleConnections() }

// dialingKey is that of the dialing in the context of a request.
type dialingKey struct{}

// dialing is what dialing for a request needs of it.
type dialing struct {
	options requestOptions
	request context.Context
}

// dialContext is the context of dialing for a request. net/http's does not end with the request.
func dialContext(ctx context.Context) (context.Context, context.CancelFunc) {
	d := ctx.Value(dialingKey{}).(*dialing)
	return context.WithTimeout(d.request, d.options.connect.or(defaultTimeout))
}

// dial connects to a host of a guest's request.
func (cl *Client) dial(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, cancel := dialContext(ctx)
	defer cancel()
	return cl.connect(ctx, address)
}

// dialTLS is dial, and the handshake.
func (cl *Client) dialTLS(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, cancel := dialContext(ctx)
	defer cancel()
	conn, err := cl.connect(ctx, address)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address)
	secure := tls.Client(conn, &tls.Config{ServerName: host, RootCAs: cl.roots(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, tlsCode(ctx, err)
	}
	return secure, nil
}

// connect tries the addresses of a host, one after another. The time that is left is shared by
// those that were not tried yet.
func (cl *Client) connect(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, code(RequestURIInvalid)
	}
	addresses, err := cl.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	for i, ip := range addresses {
		part := ctx
		if deadline, ok := ctx.Deadline(); ok && i < len(addresses)-1 {
			var cancel context.CancelFunc
			part, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addresses)-i))
			defer cancel()
		}
		var conn net.Conn
		if conn, err = dialer.DialContext(part, "tcp", net.JoinHostPort(ip.String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, connectCode(err)
}

// lookup resolves a host as the guest would: by its own hosts file and name servers.
func (cl *Client) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	system, root, err := cl.files()
	if err != nil {
		return nil, err
	}
	defer system.Close()
	stop := context.AfterFunc(ctx, system.Interrupt)
	answer, err := dns.Resolver{System: system, Root: root}.Lookup(host, "", dns.Hints{})
	if !stop() { // Interrupt may still run
		return nil, code(DNSTimeout)
	}
	switch {
	case err == nil:
		return answer.Addresses, nil
	case errors.Is(err, dns.ErrAgain):
		return nil, code(DNSTimeout)
	default:
		return nil, ErrorCode{Case: DNSError, Text: "address not available", HasText: true}
	}
}

// files is the guest's "/", nil for none, and what reads it.
func (cl *Client) files() (*wasi.System, *wasi.Dir, error) {
	system := wasi.New()
	if cl.config.Root < 0 {
		return system, nil, nil
	}
	root, err := system.Preopen(wasi.Preopen{FD: cl.config.Root, Name: "/", ReadOnly: true})
	if err != nil {
		system.Close()
		return nil, nil, err
	}
	return system, root, nil
}

// readRoots reads the certificates of the authorities that guests trust: those that the guest's
// environment names, else those of its "/".
func (cl *Client) readRoots() *x509.CertPool {
	pool := x509.NewCertPool()
	if system, root, err := cl.files(); err == nil {
		defer system.Close()
		files := rootFiles
		if cl.config.CertFile != "" {
			files = []string{strings.TrimLeft(cl.config.CertFile, "/")}
		}
		for _, file := range files {
			if root != nil && pool.AppendCertsFromPEM(root.ReadFile(file, maxRoots)) {
				return pool
			}
		}
	}
	return pool
}

// connectCode is the error-code of a connection that was not made.
func connectCode(err error) error {
	var own ErrorCode
	var timeout net.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, unix.ECONNREFUSED):
		return code(ConnectionRefused)
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EAFNOSUPPORT):
		return code(DestinationUnavailable)
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.ECONNABORTED):
		return code(ConnectionTerminated)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return code(ConnectionTimeout)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return code(DestinationIPProhibited)
	default:
		return internal(fmt.Sprintf("connect: %v", err))
	}
}

// tlsCode is the error-code of a handshake that failed.
func tlsCode(ctx context.Context, err error) error {
	var alert tls.AlertError
	var certificate *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		return code(ConnectionTimeout)
	case errors.As(err, &alert):
		return ErrorCode{Case: TLSAlertReceived, Number: uint64(alert), HasNumber: true}
	case errors.As(err, &certificate):
		return code(TLSCertificateError)
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, net.ErrClosed), isEOF(err):
		return code(ConnectionTerminated)
	default:
		return code(TLSProtocolError)
	}
}
