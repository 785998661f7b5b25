package wasihttp

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestTrailersAreTheGuests also where a header has the name of one that is announced: what is in
// the head is not sent again behind the body.
func TestTrailersAreTheGuests(t *testing.T) {
	h, _ := server(t, Limits{}, func(g *guest, request, to uint64) {
		answer := g.respond(to, 200, "trailer", "x-a, x-b", "x-a", "head", "x-b", "head")
		stream := g.own(types+"[method]outgoing-body.write", answer)
		g.write(stream, "body")
		g.finish(answer, stream, "x-b", "end")
	})
	overBoth(t, h, "[head] [head] map[X-A:[] X-B:[end]]")
}

// TestTrailersThatNoHeadAnnounces reach the client too, all the same.
func TestTrailersThatNoHeadAnnounces(t *testing.T) {
	h, _ := server(t, Limits{}, func(g *guest, request, to uint64) {
		answer := g.respond(to, 200)
		stream := g.own(types+"[method]outgoing-body.write", answer)
		g.write(stream, "body")
		g.finish(answer, stream, "x-b", "end")
	})
	overBoth(t, h, "[] [] map[X-B:[end]]")
}

// overBoth wants a response with the body "body" and these headers X-A and X-B and trailers, over
// HTTP/1.1 and HTTP/2.
func overBoth(t *testing.T, h http.Handler, want string) {
	t.Helper()
	for _, h2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(!h2)
		s.Config.Protocols.SetUnencryptedHTTP2(h2)
		s.Start()
		client := &http.Client{Transport: &http.Transport{Protocols: s.Config.Protocols}}
		response, err := client.Get(s.URL)
		if _, body := read(t, response, err); body != "body" {
			t.Errorf("HTTP/2 %t: body %q", h2, body)
		}
		if got := fmt.Sprint(response.Header["X-A"], response.Header["X-B"], response.Trailer); got != want {
			t.Errorf("HTTP/2 %t: %s", h2, got)
		}
		client.CloseIdleConnections()
		s.Close()
	}
}

// TestTrailersInOneWrite has a response with trailers, all of which is there when it is sent, cost
// one write to its connection, and one turn of its client.
func TestTrailersInOneWrite(t *testing.T) {
	h, _ := server(t, Limits{}, func(g *guest, request, to uint64) {
		response := g.do(types+"[constructor]outgoing-response", g.fields())
		body := g.own(types+"[method]outgoing-response.body", response)
		stream := g.own(types+"[method]outgoing-body.write", body)
		g.write(stream, "body")
		g.finish(body, stream, "x-t", "end")
		g.do(types+"[static]response-outparam.set", to, 0, response, 0, 0, 0, 0, 0, 0)
	})
	s := httptest.NewUnstartedServer(h)
	counted := &writes{Listener: s.Listener}
	s.Listener = counted
	s.Start()
	defer s.Close()
	const want = "4\r\nbody\r\n0\r\nX-T: end\r\n\r\n"
	if got := raw(t, s, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want an end of %q", got, want)
	}
	if n := counted.n.Load(); n != 1 {
		t.Errorf("%d writes", n)
	}
}

// writes counts what is written to the connections that a listener accepts.
type writes struct {
	net.Listener
	n atomic.Int64
}

func (w *writes) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	return &countedConn{c, &w.n}, err
}

type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}
