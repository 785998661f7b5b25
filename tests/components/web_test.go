package components_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/tests/components"
)

// web serves a component by a command. What it returns waits until the component is compiled, and
// tells the address.
func web(t *testing.T, command ...string) func() string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return func() string {
		t.Helper()
		said := ""
		for lines.Scan() {
			if _, address, found := strings.Cut(lines.Text(), "Serving HTTP on http://"); found {
				go io.Copy(io.Discard, stderr)
				return strings.TrimSuffix(address, "/")
			}
			said += lines.Text() + "\n"
		}
		t.Fatalf("%q serves nothing: %s", command, said)
		return ""
	}
}

// both are the addresses of a component that is served here and by a command of wasmtime, which
// compile it side by side.
func both(t *testing.T, component string, wasmtime ...string) (ours, theirs string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SUNABA_COMPONENTS_CACHE", t.TempDir())
	here, there := web(t, self, "serve", component), web(t, append(wasmtime, "--addr", "127.0.0.1:0", component)...)
	return here(), there()
}

// exchange is one request, as it goes over the wire, with its headers sorted by name.
type exchange struct {
	line    string   // method and path
	headers []string // beside Host
	body    string   // with its framing
	again   bool     // whether the connection can be used again is told too
	loose   bool     // how much of a response comes before it breaks off depends on when
	breaks  bool     // it breaks off here, and is complete under wasmtime, though the guest has trapped
}

const chunked = "transfer-encoding: chunked"

var exchanges = []exchange{
	{line: "GET /hello"}, {line: "HEAD /hello"}, {line: "GET /nowhere"}, {line: "GET /empty"}, {line: "GET /nobody"}, {line: "GET /headers"},
	{line: "GET /about?q=%20a&b", headers: []string{"accept: a", "connection: keep-alive", "keep-alive: 5", "te: trailers", "x-a: 1", "x-a: 2", "x-b: \xc3\xbc\xff"}},
	{line: "BREW /about", headers: []string{"X-A: has"}},
	{line: "POST /about", headers: []string{"content-length: 5", "expect: 100-continue"}, body: "hello"},
	{line: "POST /about", headers: []string{"content-length: 300000"}, body: strings.Repeat("0123456789", 30000)},
	{line: "POST /about", headers: []string{"trailer: X-T, X-U", chunked}, body: "3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\nx-t: 1\r\nx-u: 2\r\nhost: h\r\n\r\n"},
	{line: "POST /about", headers: []string{chunked}, body: "0\r\n\r\n"},
	{line: "POST /echo", headers: []string{"content-length: 200000", "te: trailers"}, body: strings.Repeat("echo", 50000)},
	{line: "POST /echo", headers: []string{"te: trailers", chunked}, body: "4\r\necho\r\n0\r\n\r\n"},
	{line: "GET /fields"}, {line: "GET /parts"}, {line: "GET /exact"}, {line: "HEAD /exact"}, {line: "GET /unfinished"}, {line: "GET /long"},
	{line: "GET /abandoned", loose: true}, {line: "GET /short", loose: true}, {line: "GET /late", breaks: true}, {line: "GET /child-output", breaks: true},
	{line: "GET /none"}, {line: "GET /trap"}, {line: "GET /error"}, {line: "GET /dropped"}, {line: "GET /child"}, {line: "GET /child-pollable"},
	{line: "GET /twice"}, {line: "GET /moved"},
	{line: "GET /get", headers: []string{"x-path: /a?b=%20", "x-scheme: http", "x-upstream: UPSTREAM"}},
	{line: "GET /get", headers: []string{"x-path: /status", "x-scheme: http", "x-upstream: UPSTREAM"}},
	{line: "GET /get", headers: []string{"x-path: /", "x-scheme: ftp", "x-upstream: UPSTREAM"}},
	{line: "GET /get", headers: []string{"x-path: /", "x-scheme: http"}},
	{line: "GET /get", headers: []string{"x-path: /", "x-scheme: http", "x-upstream: CLOSED"}},
	{line: "POST /post", headers: []string{"content-length: 0", "x-path: /p", "x-scheme: http", "x-upstream: UPSTREAM"}},
	{line: "POST /post", headers: []string{"content-length: 0", "x-path: /early", "x-scheme: http", "x-upstream: UPSTREAM"}},
	{line: "GET /204", again: true}, {line: "GET /304", again: true}, {line: "GET /zero", again: true}, {line: "GET /long", again: true},
	{line: "HEAD /204", again: true}, {line: "HEAD /304", again: true}, {line: "HEAD /zero", again: true}, {line: "HEAD /long", again: true},
	{line: "HEAD /short", again: true}, {line: "HEAD /parts", again: true}, {line: "HEAD /exact", again: true}, {line: "HEAD /hello", again: true},
	{line: "GET /hello", again: true},
}

// play sends the request and says what has come.
func (e exchange) play(t *testing.T, address string, replace *strings.Replacer) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	request := e.line + " HTTP/1.1\r\n"
	for _, h := range slices.Concat(e.headers, []string{"host: example.org"}) {
		request += replace.Replace(h) + "\r\n"
	}
	go io.WriteString(conn, request+"\r\n"+e.body)
	method, _, _ := strings.Cut(e.line, " ")
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, &http.Request{Method: method})
	for err == nil && response.StatusCode == http.StatusContinue {
		response, err = http.ReadResponse(from, &http.Request{Method: method})
	}
	if err != nil {
		if e.loose || e.breaks {
			return "broken off"
		}
		return "no response: " + err.Error()
	}
	body, err := io.ReadAll(response.Body)
	if err != nil && (e.loose || e.breaks) {
		return "broken off"
	}
	again := ""
	if e.again {
		io.WriteString(conn, "GET /hello HTTP/1.1\r\nhost: example.org\r\n\r\n")
		if next, err := http.ReadResponse(from, nil); err != nil {
			again = "\nclosed"
		} else {
			again = fmt.Sprint("\nthen ", next.StatusCode)
		}
	}
	if response.StatusCode >= 500 {
		return fmt.Sprint(response.StatusCode) // the text is the server's own
	}
	var headers []string
	for name, values := range response.Header {
		if name != "Date" && name != "Content-Length" && name != "Trailer" && name != "Connection" {
			headers = append(headers, fmt.Sprintf("%s: %q", name, values))
		}
	}
	slices.Sort(headers)
	if method != "HEAD" && response.Header.Get("Content-Length") != "" && response.ContentLength != int64(len(body)) {
		body = append(body, fmt.Sprintf(" of %d", response.ContentLength)...)
	}
	lines := strings.Split(string(body), "\n")
	for i, j := 0, 0; i < len(lines); i = j + 1 { // entries have no order that both keep
		for j = i; j < len(lines) && strings.HasPrefix(lines[j], "  "); j++ {
		}
		slices.Sort(lines[i:j])
	}
	return fmt.Sprintf("%d %s\n%s\n%s\n%v%s", response.StatusCode, strings.Join(headers, "\n"), strings.Join(lines, "\n"), fmt.Sprint(response.Trailer), err, again)
}

// upstream is what guests send requests to.
func upstream(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/early" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	body, err := io.ReadAll(r.Body)
	w.Header()["Content-Type"] = nil
	w.Header().Set("Trailer", "X-Last")
	if r.URL.Path == "/status" {
		w.WriteHeader(http.StatusNotFound)
	}
	var names []string
	for name, values := range r.Header {
		names = append(names, fmt.Sprint(name, values))
	}
	slices.Sort(names)
	fmt.Fprintln(w, r.Method, r.RequestURI, names, len(body), err, r.Trailer)
	w.Header().Set("X-Last", "end")
}

// TestServesAsUnderWasmtime serves components of wasi:http/proxy here and by `wasmtime serve`, and
// sends both the same requests.
func TestServesAsUnderWasmtime(t *testing.T) {
	all, dir := tools(t), t.TempDir()
	component := filepath.Join(dir, "web.wasm")
	if err := all.FromPlainC(t.Context(), components.Proxy, "testdata/web.c", component); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(upstream))
	defer s.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	replace := strings.NewReplacer("UPSTREAM", s.Listener.Addr().String(), "CLOSED", closed.Addr().String())
	ours, theirs := both(t, component, all.Wasmtime(), "serve", "-Scli")
	for _, e := range exchanges {
		t.Run(strings.Join(append([]string{e.line}, e.headers...), " "), func(t *testing.T) {
			want := e.play(t, theirs, replace)
			if e.breaks {
				want = "broken off"
			}
			differ(t, "response", e.play(t, ours, replace), want)
		})
	}
}

// TestPythonServesAsUnderWasmtime is the same with CPython.
func TestPythonServesAsUnderWasmtime(t *testing.T) {
	all, dir := tools(t), t.TempDir()
	component := filepath.Join(dir, "web.wasm")
	file, err := filepath.Abs("testdata/web.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := all.FromPython(t.Context(), components.Proxy, file, component); err != nil {
		t.Fatal(err)
	}
	ours, theirs := both(t, component, append(wasmtime(t, all, "serve", "python"), "-Scli")...)
	for _, e := range []exchange{{line: "GET /a?b", headers: []string{"x-a: 1"}}, {line: "POST /c", headers: []string{"content-length: 3"}, body: "abc"}} {
		differ(t, e.line, e.play(t, ours, strings.NewReplacer()), e.play(t, theirs, strings.NewReplacer()))
	}
}

// TestServiceServesAsUnderWasmtime is the same with a service of WASI 0.3.
func TestServiceServesAsUnderWasmtime(t *testing.T) {
	all, component := tools(t), filepath.Join(t.TempDir(), "service.wasm")
	if err := all.FromText(t.Context(), "../../shim/wasm/serve/testdata/service.wat", component); err != nil {
		t.Fatal(err)
	}
	ours, theirs := both(t, component, all.Wasmtime(), "serve", "-W", "component-model-async", "-W", "component-model-more-async-builtins", "-S", "p3",
		"--max-instance-reuse-count", "1")
	body := strings.Repeat("echo", 50000)
	for _, e := range []exchange{
		{line: "GET /hello", headers: []string{"te: trailers"}}, {line: "GET /open"}, {line: "GET /count"}, {line: "GET /count"}, {line: "GET /big"},
		{line: "HEAD /hello"}, {line: "GET /trap"}, {line: "GET /nothing"}, {line: "GET /failed"}, {line: "GET /restless"},
		{line: "GET /abort", loose: true}, {line: "GET /late", breaks: true},
		{line: "POST /echo", headers: []string{"content-length: 200000", "te: trailers"}, body: body},
		{line: "GET /give"}, {line: "GET /known"}, {line: "POST /known", headers: []string{"content-length: 200000"}, body: body},
		{line: "POST /give", headers: []string{"content-length: 200000", "te: trailers"}, body: body},
		{line: "POST /pass", headers: []string{"content-length: 200000", "te: trailers"}, body: body},
		{line: "POST /unread", headers: []string{"content-length: 200000"}, body: body},
		{line: "POST /echo", headers: []string{chunked}, body: "3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\n\r\n"}, // theirs leaves out trailers that are not announced
		{line: "POST /echo", headers: []string{chunked}, body: "0\r\n\r\n"},
	} {
		t.Run(e.line, func(t *testing.T) {
			want := e.play(t, theirs, strings.NewReplacer())
			if e.breaks {
				want = "broken off"
			}
			differ(t, "response", e.play(t, ours, strings.NewReplacer()), want)
		})
	}
}
