// Package execstream is the client of a command that runs in a container: it carries its streams
// over the URL that a CRI server's Exec or Attach answers with, by version 5 of Kubernetes' channel
// protocol over a WebSocket.
package execstream

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	// chunk is how much of stdin is sent at once.
	chunk = 32 << 10
	// maxMessage bounds what the server may send at once.
	maxMessage = 1 << 20
)

// Streams are those of the command. Nil ones are not connected; the request for the URL must have
// said the same.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Sizes are the terminal's, as they change; nil without a terminal. It need not be closed.
	Sizes <-chan Size
}

// Size is a terminal's size in characters.
type Size struct{ Width, Height uint16 }

// Run connects to url, of https as trusted says (nil: as the system does), and carries streams until the command ends, whose exit code it returns. If
// ctx ends, the connection does, and with it the command. A read of Stdin that waits then goes on
// until it returns.
//
// # Errors
//
// ErrUnavailable if the server cannot be reached or ends the connection before the command ends;
// ErrUnknown with its text if the command failed to run; those of Stdout and Stderr.
func Run(ctx context.Context, url string, trusted *tls.Config, s Streams) (int, error) {
	ws, err := dial(ctx, url, trusted)
	if ctx.Err() != nil {
		if err == nil {
			err = ws.Close()
		}
		return 0, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return 0, err
	}
	c := &session{ws: ws, streams: s}
	ended := context.AfterFunc(ctx, func() { c.close() })
	defer ended()
	defer c.close()
	if s.Stdin != nil {
		go c.sendInput()
	}
	if s.Sizes != nil {
		go c.sendSizes(ctx)
	}
	code, err := c.receive()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return code, err
}

func dial(ctx context.Context, address string, trusted *tls.Config) (*websocket.Conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w: %w", address, err, errdefs.ErrInvalidArgument)
	}
	origin := url.URL{Scheme: u.Scheme, Host: u.Host}
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return nil, fmt.Errorf("connect to %q: the scheme is neither http nor https: %w", address, errdefs.ErrInvalidArgument)
	}
	config, err := websocket.NewConfig(u.String(), origin.String())
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w: %w", address, err, errdefs.ErrInvalidArgument)
	}
	config.Protocol = []string{remotecommand.StreamProtocolV5Name}
	config.Header = http.Header{}
	config.TlsConfig = trusted
	ws, err := config.DialContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the server's streams: %w: %w", err, errdefs.ErrUnavailable)
	}
	ws.PayloadType = websocket.BinaryFrame
	ws.MaxPayloadBytes = maxMessage
	return ws, nil
}

// session is one connection.
type session struct {
	ws      *websocket.Conn
	streams Streams
	once    sync.Once
}

func (c *session) close() { c.once.Do(func() { c.ws.Close() }) }

func (c *session) send(channel byte, data []byte) error {
	return websocket.Message.Send(c.ws, append([]byte{channel}, data...))
}

// sendInput sends stdin and its end. If the connection ends, receive says so.
func (c *session) sendInput() {
	buf := make([]byte, chunk)
	for {
		n, err := c.streams.Stdin.Read(buf)
		if n > 0 && c.send(remotecommand.StreamStdIn, buf[:n]) != nil {
			return
		}
		if err != nil {
			c.send(remotecommand.StreamClose, []byte{remotecommand.StreamStdIn})
			return
		}
	}
}

func (c *session) sendSizes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-c.streams.Sizes:
			if !ok {
				return
			}
			data, err := json.Marshal(remotecommand.TerminalSize{Width: size.Width, Height: size.Height})
			if err != nil || c.send(remotecommand.StreamResize, data) != nil {
				return
			}
		}
	}
}

// receive writes what comes until the command's end is told.
func (c *session) receive() (int, error) {
	for {
		var message []byte
		if err := websocket.Message.Receive(c.ws, &message); err != nil {
			return 0, fmt.Errorf("the server ended the connection before the command ended: %w: %w", err, errdefs.ErrUnavailable)
		}
		if len(message) == 0 {
			continue
		}
		var to io.Writer
		switch message[0] {
		case remotecommand.StreamStdOut:
			to = c.streams.Stdout
		case remotecommand.StreamStdErr:
			to = c.streams.Stderr
		case remotecommand.StreamErr:
			if len(message) > 1 {
				return exitCode(message[1:])
			}
		}
		if to == nil || len(message) == 1 {
			continue
		}
		if _, err := to.Write(message[1:]); err != nil {
			return 0, err
		}
	}
}

// exitCode reads how the command ended.
func exitCode(data []byte) (int, error) {
	var status metav1.Status
	if err := json.Unmarshal(data, &status); err != nil {
		return 0, fmt.Errorf("read how the command ended: %w", err)
	}
	switch {
	case status.Status == metav1.StatusSuccess:
		return 0, nil
	case status.Reason != remotecommand.NonZeroExitCodeReason || status.Details == nil:
		return 0, fmt.Errorf("%w: %w", errors.New(status.Message), errdefs.ErrUnknown)
	}
	for _, cause := range status.Details.Causes {
		if cause.Type == remotecommand.ExitCodeCauseType {
			code, err := strconv.ParseUint(cause.Message, 10, 8)
			if err != nil {
				return 0, fmt.Errorf("read exit code %q: %w", cause.Message, err)
			}
			return int(code), nil
		}
	}
	return 0, fmt.Errorf("the command ended with an unknown exit code: %w", errdefs.ErrUnknown)
}
