package probes

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portOf returns the port of "127.0.0.1:1234" or "http://127.0.0.1:1234".
func portOf(t *testing.T, address string) intstr.IntOrString {
	t.Helper()
	n, err := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
	if err != nil {
		t.Fatal(err)
	}
	return intstr.FromInt(n)
}

// probeOnce carries out a probe of a container whose pod has the address of the loopback.
func probeOnce(t *testing.T, handler corev1.ProbeHandler, limit time.Duration) outcome {
	t.Helper()
	m := &maker{web: newWeb(), agent: "kube-probe/sunaba-1.2.3"}
	c := &corev1.Container{Name: "app"}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return m.check(&corev1.Probe{ProbeHandler: handler}, c, "127.0.0.1")(ctx, "id", limit)
}

func get(a corev1.HTTPGetAction) corev1.ProbeHandler { return corev1.ProbeHandler{HTTPGet: &a} }

// PR14, PR18: the status code decides, and is all that a failure says.
func TestStatusCodes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Query().Get("code"))
		w.WriteHeader(code)
		if code != 204 && code != 304 {
			w.Write(bytes.Repeat([]byte("x"), 1<<20))
		}
	}))
	defer server.Close()
	for code, want := range map[int]verdict{
		200: success, 201: success, 204: success, 299: success, 300: warning, 304: warning, 399: warning,
		400: failure, 404: failure, 500: failure, 599: failure,
	} {
		out := probeOnce(t, get(corev1.HTTPGetAction{Port: portOf(t, server.URL), Path: fmt.Sprintf("/x?code=%d", code)}), 5*time.Second)
		text := ""
		switch {
		case want == failure:
			text = fmt.Sprintf("HTTP probe failed with statuscode: %d", code)
		case code == 304:
			text = "Probe terminated redirects, Response body: "
		case want == warning:
			text = ("Probe terminated redirects, Response body: " + strings.Repeat("x", 10<<10))[:10<<10]
		}
		if out.verdict != want || out.output != text || out.err != nil {
			t.Errorf("%d: %v %.60q (%d bytes) %v", code, out.verdict, out.output, len(out.output), out.err)
		}
	}
}

// PR15, PR16: the request as the server gets it.
func TestRequest(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1")
	for _, tt := range []struct {
		name    string
		path    string
		headers []corev1.HTTPHeader
		want    string
	}{
		{"plain", "", nil, "GET / HTTP/1.1|Host: ADDRESS|User-Agent: kube-probe/sunaba-1.2.3|Connection: close|Accept: */*||"},
		{"path and query", "healthz/a b?x=1&y=%20", nil,
			"GET /healthz/a%20b?x=1&y=%20 HTTP/1.1|Host: ADDRESS|User-Agent: kube-probe/sunaba-1.2.3|Connection: close|Accept: */*||"},
		{"a path that names another host", "http://192.0.2.9:1/x", nil,
			"GET /x HTTP/1.1|Host: ADDRESS|User-Agent: kube-probe/sunaba-1.2.3|Connection: close|Accept: */*||"},
		{"a path that is no URL", "/%zz", nil,
			"GET /%25zz HTTP/1.1|Host: ADDRESS|User-Agent: kube-probe/sunaba-1.2.3|Connection: close|Accept: */*||"},
		{"replaced", "/", []corev1.HTTPHeader{{Name: "user-agent", Value: "me"}, {Name: "Accept", Value: "text/plain"}, {Name: "Host", Value: "web.example"}},
			"GET / HTTP/1.1|Host: web.example|User-Agent: me|Connection: close|Accept: text/plain||"},
		{"removed", "/", []corev1.HTTPHeader{{Name: "User-Agent"}, {Name: "Accept"}}, "GET / HTTP/1.1|Host: ADDRESS|Connection: close||"},
		{"several", "/", []corev1.HTTPHeader{{Name: "X-B", Value: "1"}, {Name: "x-a", Value: "0"}, {Name: "X-B", Value: "2"}},
			"GET / HTTP/1.1|Host: ADDRESS|User-Agent: kube-probe/sunaba-1.2.3|Connection: close|Accept: */*|X-A: 0|X-B: 1|X-B: 2||"},
		{"no second request", "/", []corev1.HTTPHeader{{Name: "X-A", Value: "0\r\n\r\nGET /evil HTTP/1.1"}},
			"GET / HTTP/1.1|Host: ADDRESS|User-Agent: kube-probe/sunaba-1.2.3|Connection: close|Accept: */*|X-A: 0    GET /evil HTTP/1.1||"},
	} {
		got := make(chan string, 1)
		address := serve(t, func(conn net.Conn) {
			defer conn.Close()
			buf := make([]byte, 4096)
			n, _ := conn.Read(buf)
			got <- string(buf[:n])
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		})
		out := probeOnce(t, get(corev1.HTTPGetAction{Port: portOf(t, address), Path: tt.path, HTTPHeaders: tt.headers}), 5*time.Second)
		want := strings.ReplaceAll(strings.ReplaceAll(tt.want, "ADDRESS", address), "|", "\r\n")
		if head := <-got; head != want || out.verdict != success {
			t.Errorf("%s: %v\n%q, want\n%q", tt.name, out, head, want)
		}
	}
}

// serve accepts connections on the loopback until the test ends.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go handle(conn)
		}
	}()
	return l.Addr().String()
}

// PR14: ports by number or the name of a port of this container.
func TestResolve(t *testing.T) {
	c := &corev1.Container{Name: "app", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "81", ContainerPort: 82}}}
	for _, tt := range []struct {
		host, ip string
		port     intstr.IntOrString
		want     string
	}{
		{"", "10.0.0.1", intstr.FromInt(80), "10.0.0.1:80"},
		{"", "fd00::1", intstr.FromString("http"), "[fd00::1]:8080"},
		{"web.example", "10.0.0.1", intstr.FromString("80"), "web.example:80"},
		{"", "10.0.0.1", intstr.FromString("81"), "10.0.0.1:82"},
		{"", "10.0.0.1", intstr.FromString("grpc"), `container "app" has no port with name "grpc": invalid argument`},
		{"", "10.0.0.1", intstr.FromInt(0), "invalid port number: 0: invalid argument"},
		{"", "10.0.0.1", intstr.FromInt(65536), "invalid port number: 65536: invalid argument"},
		{"", "", intstr.FromInt(80), `probe container "app": the pod has no address: failed precondition`},
	} {
		got, err := resolve(tt.host, tt.ip, tt.port, c)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt, got, tt.want)
		}
	}
}

// PR17: redirects are followed to the same host only, and not for ever.
func TestRedirects(t *testing.T) {
	var requests atomic.Int32
	var referer, host atomic.Value
	mux := http.NewServeMux()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		mux.ServeHTTP(w, r)
	}))
	defer server.Close()
	to := func(code int, location string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", location)
			w.WriteHeader(code)
			io.WriteString(w, "go elsewhere")
		}
	}
	mux.Handle("/same", to(302, "/end"))
	mux.Handle("/port", to(307, strings.Replace(server.URL, "http:", "HTTP:", 1)+"/end"))
	mux.Handle("/other", to(302, "http://localhost.invalid/end"))
	mux.Handle("/scheme", to(301, "ftp://127.0.0.1/end"))
	mux.Handle("/bad", to(303, "http://[/"))
	mux.Handle("/loop", to(308, "/loop"))
	mux.Handle("/nowhere", to(302, ""))
	mux.Handle("/broken", to(302, "/500"))
	mux.HandleFunc("/500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	mux.HandleFunc("/end", func(w http.ResponseWriter, r *http.Request) {
		referer.Store(r.Referer())
		host.Store(r.Host + r.Header.Get("X-A"))
	})
	url := "http://" + server.Listener.Addr().String()
	for _, tt := range []struct {
		path     string
		verdict  verdict
		output   string
		requests int32
	}{
		{"/same", success, "", 2},
		{"/port", success, "", 2},
		{"/other", warning, "Probe terminated redirects, Response body: go elsewhere", 1},
		{"/nowhere", warning, "Probe terminated redirects, Response body: go elsewhere", 1},
		{"/scheme", failure, `Get "ftp://127.0.0.1/end": unsupported protocol scheme "ftp"`, 1},
		{"/bad", failure, `Get "` + url + `/bad": parse Location header "http://[/": parse "http://[/": missing ']' in host`, 1},
		{"/loop", failure, `Get "/loop": stopped after 10 redirects`, 10},
		{"/broken", failure, "HTTP probe failed with statuscode: 500", 2},
	} {
		requests.Store(0)
		out := probeOnce(t, get(corev1.HTTPGetAction{Port: portOf(t, server.URL), Path: tt.path,
			HTTPHeaders: []corev1.HTTPHeader{{Name: "X-A", Value: "!"}, {Name: "Host", Value: "web"}}}), 5*time.Second)
		if out.verdict != tt.verdict || out.output != tt.output || out.err != nil || requests.Load() != tt.requests {
			t.Errorf("%s: %v %q %v after %d requests", tt.path, out.verdict, out.output, out.err, requests.Load())
		}
		if want := "web!"; tt.path == "/same" && (host.Load() != want || referer.Load() != url+"/same") {
			t.Errorf("the redirected request had host %q, referer %q", host.Load(), referer.Load())
		}
	}
}

// PR15: certificates are not verified; HTTP under the scheme HTTPS is named.
func TestTLS(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	defer secure.Close()
	secure.Config.ErrorLog = nil
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	if out := probeOnce(t, get(corev1.HTTPGetAction{Port: portOf(t, secure.URL), Scheme: "HTTPS"}), 5*time.Second); out.verdict != success || out.err != nil {
		t.Errorf("self-signed: %+v", out)
	}
	out := probeOnce(t, get(corev1.HTTPGetAction{Port: portOf(t, plain.URL), Scheme: "HTTPS"}), 5*time.Second)
	if want := `Get "https://` + plain.Listener.Addr().String() + `": http: server gave HTTP response to HTTPS client`; out.output != want {
		t.Errorf("HTTP: %q, want %q", out.output, want)
	}
	h2 := corev1.HTTPProtocolHTTP2
	if out := probeOnce(t, get(corev1.HTTPGetAction{Port: intstr.FromInt(80), Protocol: &h2}), time.Second); out.err == nil || !strings.Contains(out.err.Error(), "httpGet.protocol") { // PR22
		t.Errorf("H2C: %+v", out)
	}
}

// Servers that do their worst: each probe ends by its time-out, with a bound on what is read.
func TestHostileServers(t *testing.T) {
	const limit = 600 * time.Millisecond
	endless := func(start, again string) func(net.Conn) {
		return func(conn net.Conn) {
			defer conn.Close()
			bufio.NewReader(conn).ReadString('\n')
			if _, err := io.WriteString(conn, start); err != nil {
				return
			}
			block := []byte(strings.Repeat(again, 1+(16<<10)/(len(again)+1)))
			for again != "" {
				if _, err := conn.Write(block); err != nil {
					return
				}
			}
			io.Copy(io.Discard, conn) // stays open until the other side closes
		}
	}
	for _, tt := range []struct {
		name, start, again string
		verdict            verdict
		output, err        string // what is in them
	}{
		{"endless headers", "HTTP/1.1 200 OK\r\n", "X-A: b\r\n", failure, "server response headers exceeded 65536 bytes; aborted", ""},
		{"one endless header", "HTTP/1.1 200 OK\r\nX: ", "a", failure, "server response headers exceeded 65536 bytes; aborted", ""},
		{"endless status line", "HTTP/1.1 200 ", "a", failure, "server response headers exceeded 65536 bytes; aborted", ""},
		{"endless interim answers", "", "HTTP/1.1 103 Early Hints\r\n\r\n", failure, "too many 1xx informational responses", ""},
		{"endless body", "HTTP/1.1 200 OK\r\n\r\n", "abcd", success, "", ""},
		{"huge chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", "abcd", success, "", ""},
		{"endless chunk extension", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "abcd", failure, "", "line too long"},
		{"tiny chunks", "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", failure, "HTTP probe failed with statuscode: 500", ""},
		{"never answers", "", "", failure, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)", ""},
		{"never ends its body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "", failure, "", "Client.Timeout or context cancellation while reading body"},
		{"whole, but never closes", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "", success, "", ""},
		{"no HTTP", "SSH-2.0-OpenSSH_9.6\r\n", "", failure, `malformed HTTP response "SSH-2.0-OpenSSH_9.6"`, ""},
		{"early hints", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "", success, "", ""},
	} {
		address := serve(t, endless(tt.start, tt.again))
		start := time.Now()
		out := probeOnce(t, get(corev1.HTTPGetAction{Port: portOf(t, address)}), limit)
		text := ""
		if out.err != nil {
			text = out.err.Error()
		}
		if out.verdict != tt.verdict || !strings.Contains(out.output, tt.output) || !strings.Contains(text, tt.err) || (text == "") != (tt.err == "") {
			t.Errorf("%s: %v %.200q %v", tt.name, out.verdict, out.output, out.err)
		}
		if took := time.Since(start); took > limit+20*time.Second {
			t.Errorf("%s: took %v", tt.name, took)
		}
	}
}

// A server that closes early, or is not there.
func TestBrokenServers(t *testing.T) {
	for _, tt := range []struct{ answer, output, err string }{
		{"", "EOF", ""},
		{"HTTP/1.1 200 OK\r\nX:", "EOF", ""},
		{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "", "unexpected EOF"},
	} {
		address := serve(t, func(conn net.Conn) {
			defer conn.Close()
			conn.Read(make([]byte, 4096))
			io.WriteString(conn, tt.answer)
		})
		out := probeOnce(t, get(corev1.HTTPGetAction{Port: portOf(t, address)}), 5*time.Second)
		if want := `Get "http://` + address + `": ` + tt.output; tt.err == "" && (out.output != want || out.err != nil || out.verdict != failure) {
			t.Errorf("%q: %+v, want %q", tt.answer, out, want)
		}
		if tt.err != "" && (out.err == nil || out.err.Error() != tt.err) {
			t.Errorf("%q: %+v, want %q", tt.answer, out, tt.err)
		}
	}
	closed := closedPort(t)
	out := probeOnce(t, get(corev1.HTTPGetAction{Port: portOf(t, closed), Path: "/x"}), 5*time.Second)
	if want := `Get "http://` + closed + `/x": dial tcp ` + closed + `: connect: connection refused`; out.output != want || out.verdict != failure {
		t.Errorf("closed port: %+v, want %q", out, want)
	}
}

// closedPort is an address of the loopback where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// F: a probe makes little garbage: the request is ready and the answer is read with a pooled
// buffer.
func TestProbeAllocates(t *testing.T) {
	var buffers int
	w := newWeb()
	make1 := w.buffers.New
	w.buffers.New = func() any { buffers++; return make1() }
	address := serve(t, func(conn net.Conn) {
		defer conn.Close()
		conn.Read(make([]byte, 4096))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	check, err := w.probe(&corev1.HTTPGetAction{Port: portOf(t, address)}, &corev1.Container{}, "127.0.0.1", "x")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 200 {
		if out := check(ctx, "", time.Minute); out.verdict != success || out.err != nil {
			t.Fatalf("%+v", out)
		}
	}
	if buffers > 100 { // the race detector and the collector take some out of the pool
		t.Errorf("200 probes took %d buffers", buffers)
	}
}

// PR18: the server closes first, so that no port of the node stays in TIME_WAIT.
func TestTimeWait(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	defer server.Close()
	port := portOf(t, server.URL)
	for range 100 {
		if out := probeOnce(t, get(corev1.HTTPGetAction{Port: port}), 5*time.Second); out.verdict != success || out.err != nil {
			t.Fatalf("%+v", out)
		}
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	remote := fmt.Sprintf(":%04X", port.IntVal)
	ours := 0
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); f[3] == "06" && strings.HasSuffix(f[2], remote) {
			ours++
		}
	}
	if ours > 5 {
		t.Errorf("after 100 probes %d of our ports are in TIME_WAIT", ours)
	}
}
