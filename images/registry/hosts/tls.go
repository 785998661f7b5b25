package hosts

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/regular"
)

// TLS says how a server proves itself and how we do.
type TLS struct {
	CA         []string    // PEM files, beside the system's
	Client     [][2]string // certificate and key; "" for a key in the same file
	SkipVerify bool
}

func (f TLS) none() bool { return len(f.CA) == 0 && len(f.Client) == 0 && !f.SkipVerify }

// Config reads the files.
//
// # Errors
//
// ErrFailedPrecondition for a file that is not there or holds something else.
func (f TLS) Config() (*tls.Config, error) {
	c := &tls.Config{InsecureSkipVerify: f.SkipVerify}
	if len(f.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("read the system's certificates: %w", err)
		}
		for _, name := range f.CA {
			pem, err := regular.ReadConfigured(name, maxFile)
			if err != nil {
				return nil, fmt.Errorf("read certificate authority: %w: %w", err, errdefs.ErrFailedPrecondition)
			}
			if !pool.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("read certificate authority %q: no certificate in PEM form: %w", name, errdefs.ErrFailedPrecondition)
			}
		}
		c.RootCAs = pool
	}
	for _, pair := range f.Client {
		key := cmp.Or(pair[1], pair[0])
		cert, err := keyPair(pair[0], key)
		if err != nil {
			return nil, fmt.Errorf("read client certificate %q: %w: %w", pair[0], err, errdefs.ErrFailedPrecondition)
		}
		c.Certificates = append(c.Certificates, cert)
	}
	return c, nil
}

func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := regular.ReadConfigured(certFile, maxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := regular.ReadConfigured(keyFile, maxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// Key changes when a file does.
func (f TLS) Key() string {
	var key strings.Builder
	fmt.Fprintf(&key, "%v", f.SkipVerify)
	names := slices.Clone(f.CA)
	for _, p := range f.Client {
		names = append(names, p[0], p[1])
	}
	for _, name := range names {
		key.WriteString("|" + name)
		if info, err := os.Stat(name); err == nil {
			fmt.Fprintf(&key, "@%d/%d", info.ModTime().UnixNano(), info.Size())
		}
	}
	return key.String()
}
