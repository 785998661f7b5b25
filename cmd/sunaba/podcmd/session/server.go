package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/api"
)

// maxCertificate bounds the file of a certificate, in bytes.
const maxCertificate = 1 << 20

// criServer is a CRI server and how its streams are trusted.
type criServer struct {
	*dial.Client
	tls *tls.Config // nil trusts as the system does
}

// connect connects to the CRI server that --socket names, else to that which the agent tells. The
// caller closes the connection.
func (p commands) connect(ctx context.Context, cmd *cli.Command, c *api.Client) (*criServer, error) {
	socket := cmd.String("socket")
	var trusted *tls.Config
	if socket == "" {
		info, err := c.Server(ctx)
		if err != nil {
			return nil, err
		}
		socket = cmp.Or(info.CRISocket, p.socket)
		if info.StreamCertificate != "" {
			trusted = pinned(info.StreamCertificate)
		}
	}
	client, err := dial.Connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	return &criServer{client, trusted}, nil
}

// pinned trusts exactly the certificate that stands first in a file, for any name and time: the
// server on this machine has told the file through its owner's socket, and reads it again itself
// for each connection.
func pinned(file string) *tls.Config {
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
