package wasihttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// server serves what a test's guest plays, and returns the Handler and the server's address.
func server(t testing.TB, limits Limits, play func(g *guest, request, to uint64)) (*Handler, *httptest.Server) {
	t.Helper()
	h := &Handler{Instances: &played{caller: newCaller(t), play: play}, Limits: limits}
	s := httptest.NewUnstartedServer(h)
	s.Config.DisableGeneralOptionsHandler = true // the guest is asked
	s.Start()
	t.Cleanup(func() {
		s.Close()
		h.Wait()
	})
	return h, s
}

// consume gives the body of a request and its stream.
func (g *guest) consume(request uint64) (body, stream uint64) {
	body = g.own(types+"[method]incoming-request.consume", request)
	return body, g.own(types+"[method]incoming-body.stream", body)
}

// TestRequestsArrive with all that they have.
func TestRequestsArrive(t *testing.T) {
	_, s := server(t, Limits{}, func(g *guest, request, to uint64) {
		const method = types + "[method]incoming-request."
		g.do(method+"method", request, out)
		said := fmt.Sprintf("method %d", g.u8(out))
		if g.u8(out) == 9 {
			said += " " + g.text(out+4)
		}
		g.do(method+"scheme", request, out)
		said += fmt.Sprintf(" scheme %d %d", g.u8(out), g.u8(out+4))
		said += " path " + g.option(method+"path-with-query", request) + " authority " + g.option(method+"authority", request)
		headers := g.do(method+"headers", request)
		said += fmt.Sprintf(" headers %q", g.entries(headers))
		at, n := g.put("a")
		v, l := g.put("b")
		g.do(types+"[method]fields.append", headers, at, n, v, l, out)
		said += fmt.Sprintf(" append %d %d", g.u8(out), g.u8(out+1))
		g.do(types+"[resource-drop]incoming-request", request)
		same := g.entries(headers)
		said += fmt.Sprintf(" still %d", len(same))
		g.say(g.respond(to, 201, "x-answer", "1", "X-Answer", "2"), said)
	})
	for _, c := range []struct{ request, want string }{
		{"GET /a%20b//c?q=1&r HTTP/1.1\r\nHost: here:80\r\nX-B: 2\r\nx-a: 1\r\nX-b: 3\r\nUpgrade: h2\r\n", `method 0 scheme 1 0 path /a%20b//c?q=1&r authority here:80 headers ["x-a: 1" "x-b: 2" "x-b: 3"] append 1 2 still 3`},
		{"OPTIONS * HTTP/1.1\r\nHost: h\r\n", `method 6 scheme 1 0 path * authority h headers [] append 1 2 still 0`},
		{"BREW http://abs/x HTTP/1.1\r\nHost: other\r\n", `method 9 BREW scheme 1 0 path /x authority abs headers [] append 1 2 still 0`},
		{"PUT //twice HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n", `method 3 scheme 1 0 path //twice authority h headers ["content-length: 0"] append 1 2 still 1`},
	} {
		response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw(t, s, c.request+"Connection: close\r\n\r\n"))), nil)
		status, body := read(t, response, err)
		if _, typed := response.Header["Content-Type"]; body != c.want || status != 201 || len(response.Header["X-Answer"]) != 2 || typed {
			t.Errorf("got  %d %s\nwant %s\n%v", status, body, c.want, response.Header)
		}
	}
	if response := raw(t, s, "GET /\xff HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(response, "HTTP/1.1 400") {
		t.Error(response)
	}
}

// raw sends bytes and returns what comes until the server closes.
func raw(t testing.TB, s *httptest.Server, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, request)
	b, err := io.ReadAll(conn)
	if err != nil && len(b) == 0 {
		t.Errorf("%.60q: %v", request, err)
	}
	return string(b)
}

// echo answers with the body of the request, piece by piece, and its trailers.
func echo(g *guest, request, to uint64) {
	body, from := g.consume(request)
	answer := g.respond(to, 200, "trailer", "x-sum")
	stream := g.own(types+"[method]outgoing-body.write", answer)
	for {
		if g.do(input+"blocking-read", from, 100000, out); g.u8(out) != 0 {
			break
		}
		if !g.write(stream, g.text(out+4)) {
			break
		}
	}
	g.do("io/streams#[resource-drop]input-stream", from)
	var trailers []string
	for _, e := range g.trailers(body) {
		name, value, _ := strings.Cut(e, ": ")
		trailers = append(trailers, name, value)
	}
	g.finish(answer, stream, trailers...)
}

// TestBodiesStream in both directions at once, larger than any buffer, with trailers.
func TestBodiesStream(t *testing.T) {
	_, s := server(t, Limits{Time: patience}, echo)
	for _, protocol := range []string{"http/1.1", "h2c"} {
		transport := &http.Transport{}
		if protocol == "h2c" {
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(true)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			transport.Protocols = new(http.Protocols)
			transport.Protocols.SetUnencryptedHTTP2(true)
			h := s.Config.Handler
			s = httptest.NewUnstartedServer(h)
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(true)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
			defer s.Close()
		}
		pr, pw := io.Pipe()
		request, _ := http.NewRequest("POST", s.URL, pr)
		request.Trailer = http.Header{"X-Sum": nil}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		// A ping-pong first: nothing may be held back.
		for _, ping := range []string{"one", "two"} {
			io.WriteString(pw, ping)
			b := make([]byte, 3)
			if _, err := io.ReadFull(response.Body, b); err != nil || string(b) != ping {
				t.Fatalf("%s: %q, %v", protocol, b, err)
			}
		}
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		go func() {
			pw.Write(want)
			request.Trailer.Set("X-Sum", "42")
			pw.Close()
		}()
		got, err := io.ReadAll(response.Body)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d of %d bytes, %v", protocol, len(got), len(want), err)
		}
		if response.Trailer.Get("X-Sum") != "42" {
			t.Errorf("%s: trailers %v", protocol, response.Trailer)
		}
		transport.CloseIdleConnections()
	}
}

// TestAnswersInTheGuestsPlace where it fails.
func TestAnswersInTheGuestsPlace(t *testing.T) {
	var mu sync.Mutex
	var logged []string
	h, s := server(t, Limits{Time: 300 * time.Millisecond, Body: 1000}, func(g *guest, request, to uint64) {
		switch path := g.option(types+"[method]incoming-request.path-with-query", request); path {
		case "/none":
		case "/trap":
			g.do(types+"[method]fields.entries", 77, out)
		case "/error":
			g.do(types+"[static]response-outparam.set", to, 1, uint64(LoopDetected), 0, 0, 0, 0, 0, 0)
		case "/dropped":
			g.do(types+"[resource-drop]response-outparam", to)
		case "/switch":
			g.say(g.respond(to, 101), "upgraded")
		case "/twice":
			g.say(g.respond(to, 200), "once")
			g.respond(to, 201)
		case "/sleep":
			g.do("io/poll#[method]pollable.block", g.do("clocks/monotonic-clock#subscribe-duration", 1<<40))
		case "/late":
			body := g.respond(to, 200)
			g.write(g.own(types+"[method]outgoing-body.write", body), "some")
			g.do("io/poll#[method]pollable.block", g.do("clocks/monotonic-clock#subscribe-duration", 1<<40))
		case "/unfinished": // complete, as under wasmtime
			body := g.respond(to, 200)
			g.write(g.own(types+"[method]outgoing-body.write", body), "some")
		case "/abandoned":
			body := g.respond(to, 200)
			stream := g.own(types+"[method]outgoing-body.write", body)
			g.write(stream, "some")
			g.do("io/streams#[resource-drop]output-stream", stream)
			g.do(types+"[resource-drop]outgoing-body", body)
		case "/short":
			body := g.respond(to, 200, "content-length", "10")
			stream := g.own(types+"[method]outgoing-body.write", body)
			g.write(stream, "some")
			if g.finish(body, stream) {
				panic(errors.New("a short body is complete"))
			}
			if Case(g.u8(out+8)) != ResponseBodySize || g.u32(out+24) != 4 {
				panic(fmt.Errorf("a short body: %v of %d", Case(g.u8(out+8)), g.u32(out+24)))
			}
		case "/long":
			body := g.respond(to, 200, "content-length", "3")
			stream := g.own(types+"[method]outgoing-body.write", body)
			if g.write(stream, "some") || g.u8(out+4) != 0 {
				panic(errors.New("a long body is accepted"))
			}
			if g.write(stream, "s") || g.u8(out+4) != 1 {
				panic(errors.New("its stream is open"))
			}
			g.finish(body, stream)
		case "/read":
			_, stream := g.consume(request)
			text, end := g.readAll(stream)
			g.say(g.respond(to, 200), fmt.Sprintf("%d %s", len(text), end))
		default:
			g.say(g.respond(to, 200), path)
		}
	})
	h.Log = func(r *http.Request, err error) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, r.URL.Path+" "+err.Error())
	}
	for _, c := range []struct {
		path, body string
		status     int
		want, log  string
	}{
		{"/good", "", 200, "/good", ""},
		{"/none", "", 500, "Internal Server Error\n", ErrNoResponse.Error()},
		{"/trap", "", 500, "Internal Server Error\n", "unknown handle index 77"},
		{"/error", "", 500, "Internal Server Error\n", "loop-detected"},
		{"/dropped", "", 500, "Internal Server Error\n", ErrNoResponse.Error()},
		{"/twice", "", 200, "once", ""},
		{"/switch", "", 500, "Internal Server Error\n", "status 101"},
		{"/sleep", "", 504, "Gateway Timeout\n", ErrDeadline.Error()},
		{"/late", "", 200, "some and unexpected EOF", ErrDeadline.Error()},
		{"/unfinished", "", 200, "some", ""},
		{"/abandoned", "", 200, "some and unexpected EOF", errAborted.Error()},
		{"/short", "", 200, "some and unexpected EOF", errAborted.Error()},
		{"/long", "", 200, "som", errAborted.Error()},
		{"/read", strings.Repeat("x", 1000), 200, "1000 closed", ""},
		{"/read", strings.Repeat("x", 1001), 413, "Request Entity Too Large\n", "HTTP-request-body-size"},
		{"/good", "", 200, "/good", ""},
	} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(c.body)
			if chunked {
				body = io.MultiReader(body)
			}
			http.DefaultClient.CloseIdleConnections() // one may be closed soon: the answer to /long is complete
			response, err := http.Post(s.URL+c.path, "text/plain", body)
			status, text := read(t, response, err)
			log := func() string {
				mu.Lock()
				defer mu.Unlock()
				return strings.Join(logged, "\n")
			}
			waitFor(t, func() bool { return strings.Contains(log(), c.log) }) // it may come behind the response
			if status != c.status || text != c.want || c.log == "" && log() != "" {
				t.Errorf("%s with %d bytes, chunked %v: %d %q, logged %q; want %d %q", c.path, len(c.body), chunked, status, text, log(), c.status, c.want)
			}
			mu.Lock()
			logged = nil
			mu.Unlock()
		}
	}
}

// TestBusy is 503, and what was busy is used again.
func TestBusy(t *testing.T) {
	release := make(chan struct{})
	h, s := server(t, Limits{}, func(g *guest, request, to uint64) {
		<-release
		g.say(g.respond(to, 200), "done")
	})
	h.Instances.(*played).busy = make(chan struct{}, 1)
	first := make(chan int)
	go func() {
		response, err := http.Get(s.URL)
		status, _ := read(t, response, err)
		first <- status
	}()
	var status int
	for status != 503 {
		if len(h.Instances.(*played).busy) == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		response, err := http.Get(s.URL)
		status, _ = read(t, response, err)
	}
	close(release)
	if got := <-first; got != 200 {
		t.Errorf("first %d", got)
	}
	for {
		response, err := http.Get(s.URL)
		if status, text := read(t, response, err); status == 200 && text == "done" {
			break
		}
	}
}

// TestManyAtOnce get their own answers.
func TestManyAtOnce(t *testing.T) {
	_, s := server(t, Limits{Time: patience}, echo)
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			want := strings.Repeat(fmt.Sprint(i, " "), 1+i*100)
			response, err := http.Post(s.URL, "text/plain", io.MultiReader(strings.NewReader(want)))
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if got, err := io.ReadAll(response.Body); err != nil || string(got) != want {
				t.Errorf("%d: %d of %d bytes, %v", i, len(got), len(want), err)
			}
		})
	}
	wait.Wait()
}

// TestUnreadBodies never become requests: a connection is used again only behind a complete body.
func TestUnreadBodies(t *testing.T) {
	answered := make(chan struct{}, 10)
	_, s := server(t, Limits{Time: patience}, func(g *guest, request, to uint64) {
		path := g.option(types+"[method]incoming-request.path-with-query", request)
		if path == "/part" {
			_, stream := g.consume(request)
			g.do(input+"blocking-read", stream, 1, out)
		}
		g.say(g.respond(to, 200), path)
		answered <- struct{}{}
	})
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, path := range []string{"/whole", "/part"} {
		for name, c := range map[string]struct {
			head, body string
			again      bool // the connection may be used again
		}{
			"complete":   {fmt.Sprintf("Content-Length: %d", len(smuggled)), smuggled, true},
			"incomplete": {"Content-Length: 1000", smuggled, false},
			"chunks":     {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(smuggled), smuggled), false},
			"all chunks": {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled), true},
		} {
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(patience))
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n%s", path, c.head, c.body)
			<-answered
			if c.again && path == "/whole" {
				fmt.Fprint(conn, "GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			} else if cw, ok := conn.(*net.TCPConn); ok && !c.again {
				time.Sleep(20 * time.Millisecond)
				cw.Write([]byte(smuggled))
			} else {
				fmt.Fprint(conn, "GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			}
			b, _ := io.ReadAll(conn)
			conn.Close()
			if text := string(b); strings.Contains(text, "/smuggled") || !strings.Contains(text, path) || c.again && path == "/whole" && !strings.Contains(text, "/next") {
				t.Errorf("%s, %s: %q", path, name, text)
			}
			for len(answered) > 0 {
				<-answered
			}
		}
	}
}

// TestGoneClients end the streams of their guests.
func TestGoneClients(t *testing.T) {
	ended := make(chan string, 2)
	_, s := server(t, Limits{}, func(g *guest, request, to uint64) {
		if g.option(types+"[method]incoming-request.path-with-query", request) == "/read" {
			_, stream := g.consume(request)
			text, end := g.readAll(stream)
			ended <- text + " " + end
			return
		}
		stream := g.own(types+"[method]outgoing-body.write", g.respond(to, 200))
		for g.write(stream, strings.Repeat("x", 4096)) {
		}
		ended <- fmt.Sprint("closed ", g.u8(out+4))
	})
	for path, want := range map[string]string{"/read": "half connection-terminated", "/write": "closed 1"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		length := map[string]int{"/read": 8}[path]
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", path, length, "half"[:length/2])
		if path == "/write" {
			conn.Read(make([]byte, 100))
		} else {
			time.Sleep(10 * time.Millisecond)
		}
		conn.Close()
		select {
		case got := <-ended:
			if got != want {
				t.Errorf("%s: %s", path, got)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the guest goes on", path)
		}
	}
}

// TestHeadAndNoContent have no body, whatever the guest writes.
func TestHeadAndNoContent(t *testing.T) {
	_, s := server(t, Limits{}, func(g *guest, request, to uint64) {
		status := 200
		if g.option(types+"[method]incoming-request.path-with-query", request) == "/204" {
			status = 204
		}
		g.say(g.respond(to, status), "body")
	})
	response, err := http.Head(s.URL)
	if status, text := read(t, response, err); status != 200 || text != "" {
		t.Error(status, text)
	}
	response, err = http.Get(s.URL + "/204")
	if status, text := read(t, response, err); status != 204 || text != "" {
		t.Error(status, text)
	}
}

// TestChildren of bodies are dropped before their parents, and what is given away is gone.
func TestChildren(t *testing.T) {
	var problems []string
	_, s := server(t, Limits{}, func(g *guest, request, to uint64) {
		check := func(want, name string, params ...uint64) {
			if _, err := g.try(name, params...); err == nil || !strings.Contains(err.Error(), want) {
				problems = append(problems, fmt.Sprintf("%s: %v, want %q", name, err, want))
			}
		}
		body, stream := g.consume(request)
		if g.own(types+"[method]incoming-request.consume", request) != 0 || g.own(types+"[method]incoming-body.stream", body) != 0 {
			problems = append(problems, "a body or a stream is given out twice")
		}
		check("has children", types+"[static]incoming-body.finish", body)
		check("has children", types+"[resource-drop]incoming-body", body)
		pollable := g.do(input+"subscribe", stream)
		check("has children", "io/streams#[resource-drop]input-stream", stream)
		g.do("io/poll#[resource-drop]pollable", pollable)
		g.do("io/streams#[resource-drop]input-stream", stream)
		trailers := g.do(types+"[static]incoming-body.finish", body)
		g.await(types+"[method]future-trailers.subscribe", trailers)
		g.do(types+"[method]future-trailers.get", trailers, out)
		first := []uint8{g.u8(out), g.u8(out + 8), g.u8(out + 16), g.u8(out + 24)}
		g.do(types+"[method]future-trailers.get", trailers, out)
		if !slices.Equal(first, []uint8{1, 0, 0, 0}) || g.u8(out) != 1 || g.u8(out+8) != 1 {
			problems = append(problems, fmt.Sprintf("trailers: %v", first))
		}
		response := g.do(types+"[constructor]outgoing-response", g.fields())
		answer := g.own(types+"[method]outgoing-response.body", response)
		if g.own(types+"[method]outgoing-response.body", response) != 0 {
			problems = append(problems, "a body is given out twice")
		}
		writer := g.own(types+"[method]outgoing-body.write", answer)
		if g.own(types+"[method]outgoing-body.write", answer) != 0 {
			problems = append(problems, "a stream is given out twice")
		}
		check("has children", types+"[static]outgoing-body.finish", answer, 0, 0, out)
		g.do(types+"[static]response-outparam.set", to, 0, response, 0, 0, 0, 0, 0, 0)
		check("unknown handle", types+"[static]response-outparam.set", to, 1, 0, 0, 0, 0, 0, 0, 0)
		check("unknown handle", types+"[method]outgoing-response.status-code", response)
		g.write(writer, "fine")
		g.finish(answer, writer)
	})
	response, err := http.Post(s.URL, "", io.MultiReader(strings.NewReader("body")))
	if status, text := read(t, response, err); status != 200 || text != "fine" {
		t.Error(status, text)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// TestSlowClients hold up the guest, not the memory, and only as long as the request may take.
func TestSlowClients(t *testing.T) {
	written := make(chan int, 1)
	_, s := server(t, Limits{Time: 500 * time.Millisecond}, func(g *guest, request, to uint64) {
		n := 0
		defer func() { written <- n }()
		stream := g.own(types+"[method]outgoing-body.write", g.respond(to, 200))
		for g.write(stream, strings.Repeat("x", 4096)) {
			n += 4096
		}
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4096)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	select {
	case n := <-written:
		if n > 32<<20 {
			t.Errorf("%d bytes are under way", n)
		}
	case <-time.After(patience):
		t.Fatal("the guest waits for ever")
	}
}

// FuzzRequest sends any bytes to a server whose guest reads all it can. Nothing panics or hangs,
// and what net/http takes for one request arrives as that.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "POST /x?y HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx", "GET / HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
	} {
		f.Add([]byte(s))
	}
	_, s := server(f, Limits{Time: 10 * time.Second, Body: 1 << 16}, func(g *guest, request, to uint64) {
		const method = types + "[method]incoming-request."
		said := g.option(method+"path-with-query", request) + g.option(method+"authority", request)
		g.do(method+"method", request, out)
		g.do(method+"scheme", request, out)
		said += fmt.Sprint(g.entries(g.do(method+"headers", request)))
		body, stream := g.consume(request)
		text, end := g.readAll(stream)
		g.do("io/streams#[resource-drop]input-stream", stream)
		said += end + fmt.Sprint(g.trailers(body)) + " " + text
		answer := g.respond(to, 200, "x-length", fmt.Sprint(len(text)))
		writer := g.own(types+"[method]outgoing-body.write", answer)
		g.write(writer, said)
		g.finish(answer, writer)
	})
	f.Fuzz(func(t *testing.T, request []byte) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		conn.Write(request)
		conn.(*net.TCPConn).CloseWrite()
		answer, err := io.ReadAll(conn)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("the server hangs")
		}
		if bytes.Contains(answer, []byte(" 500 ")) || bytes.Contains(answer, []byte(" 504 ")) {
			t.Fatalf("%q", answer)
		}
	})
}

// waitFor polls, as a test may.
func waitFor(t *testing.T, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ready(); time.Sleep(10 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing happens")
		}
	}
}

// keeper is a guest of which one instance answers all requests.
type keeper struct {
	*guest
	async bool
	play  func(g *guest, handles []uint64)
}

func (k *keeper) Take(context.Context, time.Time) (Guest, error) { return k, nil }
func (k *keeper) Context() context.Context                       { return k.ctx }
func (k *keeper) Stop(error)                                     {}
func (k *keeper) Async() bool                                    { return k.async }
func (k *keeper) Release(error)                                  {}

func (k *keeper) Handle(_ context.Context, handles ...uint64) error {
	k.play(k.guest, handles)
	return nil
}

// large is the body of a request, and what net/http has of that.
type large struct {
	io.Reader
	_ [1 << 20]byte
}

func (*large) Close() error { return nil }

// TestRequestsThatAreKept are not more than the guest's handles need, whatever net/http has of them.
func TestRequestsThatAreKept(t *testing.T) {
	third := &keeper{newRandomCaller(t).asynchronous(), true, func(g *guest, handles []uint64) {
		res, _ := g.pair(newFuture)
		g.call3("[static]request.consume-body", handles[0], res, out)
	}}
	for name, k := range map[string]*keeper{
		"0.2":         {newGuest(t), false, func(*guest, []uint64) {}},
		"0.2, a body": {newGuest(t), false, func(g *guest, handles []uint64) { g.consume(handles[0]) }},
		"0.3":         third,
	} {
		h := &Handler{Instances: k}
		before := heap()
		for range 50 {
			r := httptest.NewRequest("POST", "/", &large{Reader: strings.NewReader("body")})
			r.ContentLength = -1
			h.ServeHTTP(httptest.NewRecorder(), r)
			h.Wait()
		}
		if grown := heap() - before; grown > 5<<20 {
			t.Errorf("%s: the memory has grown by %d KiB", name, grown>>10)
		}
	}
	third.close()
}

// TestHeadOfManyFields is answered by the host.
func TestHeadOfManyFields(t *testing.T) {
	_, s := server(t, Limits{}, func(g *guest, _, to uint64) { g.respond(to, 200) })
	for n, want := range map[int]int{1700: 200, 1800: 431} {
		r, err := http.NewRequest("GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = many(n)
		response, err := s.Client().Do(r)
		if status, _ := read(t, response, err); status != want {
			t.Errorf("%d fields: %d, not %d", n, status, want)
		}
	}
}
