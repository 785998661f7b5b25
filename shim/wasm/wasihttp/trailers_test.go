package wasihttp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
	for _, h2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(!h2)
		s.Config.Protocols.SetUnencryptedHTTP2(h2)
		s.Start()
		client := &http.Client{Transport: &http.Transport{Protocols: s.Config.Protocols}}
		response, err := client.Get(s.URL)
		if _, body := read(t, response, err); body != "body" {
			t.Errorf("body %q", body)
		}
		if got := fmt.Sprint(response.Header["X-A"], response.Header["X-B"], response.Trailer); got != "[head] [head] map[X-A:[] X-B:[end]]" {
			t.Errorf("HTTP/2 %t: %s", h2, got)
		}
		client.CloseIdleConnections()
		s.Close()
	}
}
