package unixhttp

import (
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/unixsocket"
)

func TestConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	if _, err := Connect(t.Context(), path); !errdefs.IsUnavailable(err) {
		t.Fatalf("no socket: %v", err)
	}
	l, err := unixsocket.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })}
	go s.Serve(l)
	c, err := Connect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := c.Get("http://any/name")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "/name" || err != nil {
		t.Errorf("answer %q, %v", text, err)
	}
	s.Close()
	if _, err := Connect(t.Context(), path); !errdefs.IsUnavailable(err) {
		t.Errorf("a server that ended: %v", err)
	}
}
