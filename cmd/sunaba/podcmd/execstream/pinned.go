package execstream

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/sunaba-project/sunaba/host/regular"
)

// maxCertificate bounds the file of a certificate, in bytes.
const maxCertificate = 1 << 20

// Pinned trusts exactly the certificate that stands first in a file, for any name and time: the
// server on this machine has told the file through its owner's socket, and reads it again itself
// for each connection.
func Pinned(file string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection does it
		VerifyConnection: func(s tls.ConnectionState) error {
			data, err := regular.ReadConfigured(file, maxCertificate)
			if err != nil {
				return fmt.Errorf("read the server's certificate: %w", err)
			}
			for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
				if block.Type != "CERTIFICATE" {
					continue
				}
				if len(s.PeerCertificates) > 0 && bytes.Equal(s.PeerCertificates[0].Raw, block.Bytes) {
					return nil
				}
				return fmt.Errorf("the server's certificate is not that of %q", file)
			}
			return errors.New("file " + file + " has no certificate")
		},
	}
}
