package stream

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sunaba-project/sunaba/host/process"
)

// serveV5 serves version 5 of the channel protocol, which is only spoken over WebSockets: version 4
// in which a client can also end its input. cri-streaming knows of it and does not serve it.
func (s *Server) serveV5(w http.ResponseWriter, r *http.Request, c *command) {
	channels := make([]wsstream.ChannelType, remotecommand.StreamResize+1)
	channels[remotecommand.StreamStdIn] = channel(c.wants.Stdin, wsstream.ReadChannel)
	channels[remotecommand.StreamStdOut] = channel(c.wants.Stdout, wsstream.WriteChannel)
	channels[remotecommand.StreamStdErr] = channel(c.wants.Stderr, wsstream.WriteChannel)
	channels[remotecommand.StreamErr] = wsstream.WriteChannel
	channels[remotecommand.StreamResize] = wsstream.ReadChannel
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		remotecommand.StreamProtocolV5Name: {Binary: true, Channels: channels},
	})
	conn.SetIdleTimeout(idleLimit)
	_, streams, err := conn.Open(w, r)
	if err != nil {
		s.o.Logger.Debug("failed to upgrade connection", "error", err)
		return
	}
	defer conn.Close()
	// Something empty by the lowest channel that can be written to tells the client that the
	// connection stands.
	first := remotecommand.StreamErr
	switch {
	case c.wants.Stdout:
		first = remotecommand.StreamStdOut
	case c.wants.Stderr:
		first = remotecommand.StreamStdErr
	}
	if _, err := streams[first].Write(nil); err != nil {
		return
	}
	code, err := c.run(r.Context(), c.streams(
		streams[remotecommand.StreamStdIn], streams[remotecommand.StreamStdOut], streams[remotecommand.StreamStdErr],
		decodeSizes(streams[remotecommand.StreamResize])))
	if err != nil {
		s.o.Logger.Debug("session failed", "error", err)
	}
	if err := json.NewEncoder(streams[remotecommand.StreamErr]).Encode(toStatus(code, err)); err != nil {
		s.o.Logger.Debug("failed to send the end of a session", "error", err)
	}
}

func channel(wanted bool, kind wsstream.ChannelType) wsstream.ChannelType {
	if wanted {
		return kind
	}
	return wsstream.IgnoreChannel
}

func decodeSizes(from io.Reader) func() (width, height uint16, ok bool) {
	dec := json.NewDecoder(from)
	return func() (uint16, uint16, bool) {
		var size remotecommand.TerminalSize
		if err := dec.Decode(&size); err != nil {
			return 0, 0, false
		}
		return size.Width, size.Height, true
	}
}

// toStatus is the end of a session in the words of versions 4 and 5.
func toStatus(code int32, err error) metav1.Status {
	switch {
	case err != nil:
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
			Message: fmt.Sprintf("Internal error occurred: %v", err),
		}
	case code != 0:
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(process.ExitCode(int(code)))},
			}},
			Message: fmt.Sprintf("command terminated with non-zero exit code: command ended with exit code %d", code),
		}
	}
	return metav1.Status{Status: metav1.StatusSuccess}
}
