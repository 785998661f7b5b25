package wasihttp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// spoken is an answer whose body, or what content-length says of it, is not sent as it is.
type spoken struct {
	method string
	status int
	length int    // content-length, -1 for none
	body   int    // in bytes, -1 for a guest that makes none
	want   string // the client's: content-length and how many bytes it got
	closed bool   // the connection is not used again
}

var spokens = []spoken{
	{"GET", 200, -1, 5, "any, 5", false}, // net/http adds the length unless the guest was slow
	{"GET", 200, 5, 5, "5, 5", false},
	{"GET", 200, 0, 0, "0, 0", false},
	{"GET", 200, 0, -1, "0, 0", false},
	{"GET", 200, 0, 5, "0, 0", false},
	{"GET", 200, 5, 9, "5, 5", false},
	{"GET", 200, 5, 3, "5, 3 and unexpected EOF", true},
	{"GET", 200, 60000, 60000, "60000, 60000", false},
	{"GET", 200, 30000, 60000, "30000, 30000", false},
	{"GET", 200, 60000, 30000, "60000, 30000 and unexpected EOF", true},
	{"GET", 204, -1, -1, "none, 0", false},
	{"GET", 204, -1, 0, "none, 0", false},
	{"GET", 204, -1, 5, "none, 0", false},
	{"GET", 204, 5, 5, "none, 0", false},
	{"GET", 204, 5, 9, "none, 0", false},
	{"GET", 204, 5, 3, "none, 0", false},
	{"GET", 204, -1, 60000, "none, 0", false},
	{"GET", 304, -1, -1, "none, 0", false},
	{"GET", 304, 5, -1, "none, 0", false},
	{"GET", 304, 5, 0, "none, 0", false},
	{"GET", 304, 5, 5, "none, 0", false},
	{"GET", 304, 5, 3, "none, 0", false},
	{"GET", 304, -1, 60000, "none, 0", false},
	{"HEAD", 200, -1, -1, "any, 0", false},
	{"HEAD", 200, -1, 0, "any, 0", false},
	{"HEAD", 200, -1, 5, "any, 0", false},
	{"HEAD", 200, -1, 60000, "none, 0", false},
	{"HEAD", 200, 0, 0, "0, 0", false},
	{"HEAD", 200, 5, -1, "5, 0", false},
	{"HEAD", 200, 5, 0, "5, 0", false},
	{"HEAD", 200, 5, 3, "5, 0", false},
	{"HEAD", 200, 5, 5, "5, 0", false},
	{"HEAD", 200, 5, 9, "5, 0", false},
	{"HEAD", 200, 30000, 60000, "30000, 0", false},
	{"HEAD", 200, 60000, 30000, "60000, 0", false},
	{"HEAD", 204, 5, 5, "none, 0", false},
	{"HEAD", 304, 5, 3, "none, 0", false},
}

// target is a path that asks for the answer.
func (s spoken) target() string { return fmt.Sprintf("/%d/%d/%d", s.status, s.length, s.body) }

// spokenOf is the answer that a target asks for.
func spokenOf(target string) (s spoken) {
	if _, err := fmt.Sscanf(target, "/%d/%d/%d", &s.status, &s.length, &s.body); err != nil {
		panic(err)
	}
	return s
}

// headers are those of the answer.
func (s spoken) headers() []string {
	if s.length < 0 {
		return nil
	}
	return []string{"content-length", strconv.Itoa(s.length)}
}

// speak answers as a guest of WASI 0.2.
func speak(g *guest, request, to uint64) {
	s := spokenOf(g.option(types+"[method]incoming-request.path-with-query", request))
	if s.body < 0 {
		response := g.do(types+"[constructor]outgoing-response", g.fields(s.headers()...))
		g.do(types+"[method]outgoing-response.set-status-code", response, uint64(s.status))
		g.do(types+"[static]response-outparam.set", to, 0, response, 0, 0, 0, 0, 0, 0)
		return
	}
	g.say(g.respond(to, s.status, s.headers()...), strings.Repeat("b", s.body))
}

// speak3 answers as a guest of WASI 0.3.
func speak3(g *guest, r *request) {
	s := spokenOf(r.path.text)
	trailers, end := g.pair(newFuture)
	body, writer := uint64(0), uint64(0)
	if s.body >= 0 {
		body, writer = g.pair(newStream)
	}
	headers := uint64(uint32(g.call3("[constructor]fields")))
	for all := s.headers(); len(all) > 0; all = all[2:] {
		n, nl := g.put(all[0])
		v, vl := g.put(all[1])
		g.call3("[method]fields.append", headers, n, nl, v, vl, out)
	}
	g.call3("[static]response.new", headers, min(body, 1), body, trailers, out)
	response := uint64(g.u32(out))
	g.call3("[method]response.set-status-code", response, uint64(s.status))
	g.call3("task.return:iiiIiiii", 0, response, 0, 0, 0, 0, 0, 0)
	if s.body >= 0 {
		g.mem.WriteString(long, strings.Repeat("b", s.body))
		for left := uint64(s.body); left > 0; {
			result := uint32(g.call3("stream.write:1.1.n:a", writer, long, left))
			if left -= uint64(result >> 4); result&15 != 0 {
				break // nobody reads, or a wait, which 60,000 bytes do not need
			}
		}
		g.call3("stream.drop-writable:1.1.n", writer)
	}
	g.call3("future.write:40.8.v:a", end, success)
}

// arrived is the request of a guest of WASI 0.3, of the first handle.
func (g *guest) arrived() *request {
	return canonical.Get[*request](&canonical.Call{Instance: g.instance.ABI()}, 1)
}

// TestAnswersWithoutBodies sends requests whose answers have no body, or another one than they say,
// and another request over the same connection.
func TestAnswersWithoutBodies(t *testing.T) {
	_, second := server(t, Limits{}, speak)
	c := newRandomCaller(t)
	h := &Handler{Instances: asyncGuests{c, func(g *guest) { speak3(g, g.arrived()) }}}
	third := httptest.NewServer(h)
	defer h.Wait()
	defer third.Close()
	for world, s := range map[string]*httptest.Server{"0.2": second, "0.3": third} {
		for _, of := range spokens {
			t.Run(fmt.Sprint(world, " ", of.method, of.target()), func(t *testing.T) { of.ask(t, s.Listener.Addr().String()) })
		}
	}
}

// ask sends the request and another one.
func (s spoken) ask(t *testing.T, address string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	from := bufio.NewReader(conn)
	exchange := func(method, target string) (*http.Response, string, error) {
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: h\r\n\r\n", method, target)
		response, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			return nil, "", err
		}
		body, err := io.ReadAll(response.Body)
		return response, string(body), err
	}
	response, body, err := exchange(s.method, s.target())
	if response == nil {
		t.Fatal(err)
	}
	length := "none"
	if values := response.Header["Content-Length"]; values != nil {
		length = strings.Join(values, " and ")
	}
	if strings.HasPrefix(s.want, "any") {
		length = "any"
	}
	got := fmt.Sprint(length, ", ", len(body))
	if err != nil {
		got += " and " + err.Error()
	}
	if response.StatusCode != s.status || got != s.want || strings.Trim(body, "b") != "" {
		t.Errorf("status %d, %s, not %d, %s", response.StatusCode, got, s.status, s.want)
	}
	response, body, err = exchange("GET", "/200/-1/7")
	if s.closed != (response == nil) || response != nil && (response.StatusCode != 200 || len(body) != 7 || err != nil) {
		t.Errorf("the next answer is %v with %q: %v", response, body, err)
	}
}
