package execstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// serve is a server that runs one command in each connection, with the channels of protocol 5.
func serve(t *testing.T, command func(streams []io.ReadWriteCloser) any) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": {Binary: true, Channels: []wsstream.ChannelType{
			wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel,
		}}})
		_, streams, err := conn.Open(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		streams[1].Write(nil)
		if end := command(streams); end != nil {
			json.NewEncoder(streams[3]).Encode(end)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/exec/token"
}

func failed(causes ...metav1.StatusCause) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{Causes: causes}}
}

func TestRun(t *testing.T) {
	url := serve(t, func(s []io.ReadWriteCloser) any {
		in, err := io.ReadAll(s[0])
		if err != nil {
			return err.Error()
		}
		s[1].Write(bytes.ToUpper(in))
		s[2].Write([]byte("warning"))
		return failed(metav1.StatusCause{Type: "ExitCode", Message: "42"})
	})
	text := strings.Repeat("there and back ", 10000)
	var out, errOut bytes.Buffer
	code, err := Run(t.Context(), url, nil, Streams{Stdin: strings.NewReader(text), Stdout: &out, Stderr: &errOut})
	if err != nil || code != 42 || out.String() != strings.ToUpper(text) || errOut.String() != "warning" {
		t.Errorf("%d, %v, %d bytes, %q", code, err, out.Len(), errOut.String())
	}
}

func TestSizes(t *testing.T) {
	url := serve(t, func(s []io.ReadWriteCloser) any {
		var size struct{ Width, Height int }
		if err := json.NewDecoder(s[4]).Decode(&size); err != nil || size.Width != 120 || size.Height != 40 {
			t.Errorf("%+v, %v", size, err)
		}
		return metav1.Status{Status: metav1.StatusSuccess}
	})
	sizes := make(chan Size, 1)
	sizes <- Size{Width: 120, Height: 40}
	if code, err := Run(t.Context(), url, nil, Streams{Sizes: sizes}); code != 0 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		end   any
		code  int
		class error
		text  string
	}{
		{name: "success", end: metav1.Status{Status: metav1.StatusSuccess}},
		{name: "255", end: failed(metav1.StatusCause{Type: "ExitCode", Message: "255"}), code: 255},
		{name: "no such program", end: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: "exec: no such file"}, class: errdefs.ErrUnknown, text: "no such file"},
		{name: "no code", end: failed(), class: errdefs.ErrUnknown, text: "unknown exit code"},
		{name: "not a number", end: failed(metav1.StatusCause{Type: "ExitCode", Message: "x"}), text: "exit code"},
		{name: "not a status", end: "x", text: "read how the command ended"},
		{name: "cut", class: errdefs.ErrUnavailable, text: "before the command ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := serve(t, func([]io.ReadWriteCloser) any { return tt.end })
			code, err := Run(t.Context(), url, nil, Streams{})
			if code != tt.code || tt.text == "" && err != nil || tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text)) {
				t.Errorf("%d, %v; want %d, %q", code, err, tt.code, tt.text)
			}
			if tt.class != nil && !errors.Is(err, tt.class) {
				t.Errorf("class of %v", err)
			}
		})
	}
}

// A command that does not end ends with its caller, also while stdin waits.
func TestCallerLeaves(t *testing.T) {
	left := make(chan struct{})
	started := make(chan struct{})
	url := serve(t, func(s []io.ReadWriteCloser) any {
		close(started)
		io.Copy(io.Discard, s[0])
		close(left)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	in, w := io.Pipe()
	defer w.Close()
	if _, err := Run(ctx, url, nil, Streams{Stdin: in}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	<-left
}

func TestWrongURL(t *testing.T) {
	for url, class := range map[string]error{
		"ftp://127.0.0.1/x": errdefs.ErrInvalidArgument, "http://127.0.0.1:1/x": errdefs.ErrUnavailable, "%": errdefs.ErrInvalidArgument,
	} {
		if _, err := Run(t.Context(), url, nil, Streams{}); !errors.Is(err, class) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
