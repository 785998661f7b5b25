package session

import (
	"cmp"
	"context"
	"crypto/tls"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
	"github.com/sunaba-project/sunaba/pods/api"
)

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
			trusted = execstream.Pinned(info.StreamCertificate)
		}
	}
	client, err := dial.Connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	return &criServer{client, trusted}, nil
}
