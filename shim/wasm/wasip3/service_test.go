package wasip3_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/serve"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
)

// answer is what a service is to answer, or an endpoint answers.
type answer struct {
	Status   int               `json:"status"`
	Headers  map[string]string `json:"headers"`
	Body     string            `json:"body"`
	Chunks   []string          `json:"chunks"`
	Trailers map[string]string `json:"trailers"`
}

// server is one that programs of wasi-testsuite's send requests to.
type server struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"` // "closed": nothing listens there
	Endpoints []struct {
		Method   string `json:"method"`
		Path     string `json:"path"`
		Mode     string `json:"mode"`
		Response answer `json:"response"`
	} `json:"endpoints"`
}

// start starts the server, and returns its address.
func (s server) start(t *testing.T) string {
	running := httptest.NewServer(s)
	if s.Kind == "closed" {
		running.Close()
	}
	t.Cleanup(running.Close)
	return running.Listener.Addr().String()
}

// ServeHTTP implements http.Handler.
func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for _, e := range s.Endpoints {
		switch {
		case e.Method != r.Method || e.Path != r.RequestURI:
			continue
		case e.Mode == "echo-body":
			w.Write(body)
		case e.Mode == "echo-headers":
			echoHeaders(w.Header(), r)
		default:
			e.Response.write(w)
		}
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

// echoHeaders tells of the head of a request, and of its trailers.
func echoHeaders(to http.Header, r *http.Request) {
	to.Set("x-request-method", r.Method)
	to.Set("x-request-path", r.RequestURI)
	to.Set("x-echo-host", r.Host)
	for prefix, header := range map[string]http.Header{"x-echo-": r.Header, "x-trailer-": r.Trailer, "x-echo-transfer-": {"Encoding": r.TransferEncoding}} {
		for name, values := range header {
			for _, v := range values {
				to.Add(prefix+name, v)
			}
		}
	}
}

func (a answer) write(w http.ResponseWriter) {
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.Status)
	io.WriteString(w, a.Body)
	for _, chunk := range a.Chunks {
		io.WriteString(w, chunk)
		w.(http.Flusher).Flush()
	}
	for name, value := range a.Trailers {
		w.Header().Set(http.TrailerPrefix+name, value)
	}
}

// serve serves the program, as a container's is.
func (p *played) serve() {
	p.Helper()
	m, err := p.make(p.T)
	p.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	p.must(err)
	client := wasihttp.NewClient(wasihttp.ClientConfig{Root: -1})
	instances := serve.NewInstances(&serve.Component{Context: m.context, Runtime: m.runtime, Compiled: m.compiled, Host: m.host, Extension: client}, nil, serve.Options{})
	handler := &wasihttp.Handler{Instances: instances, Limits: wasihttp.Limits{Time: time.Minute},
		Log: func(r *http.Request, err error) { fmt.Fprintln(p.stdio[2], r.Method, r.URL, err) }}
	p.server, p.url = serve.NewServer(l.(*net.TCPListener), handler, nil, func() {}, func() {}), "http://"+l.Addr().String()
	go func() {
		code := uint32(0)
		if err := p.server.Serve(); err != nil {
			fmt.Fprintln(p.stdio[2], err)
			code = 1
		}
		instances.Close()
		client.Close()
		m.close()
		for _, f := range p.stdio {
			f.Close()
		}
		p.ended <- code
	}()
	p.Cleanup(p.server.Drain)
}

// request sends one to the program.
func (p *played) request(o operation) {
	p.Helper()
	request, err := http.NewRequest(o.Method, p.url+o.Path, strings.NewReader(o.Body))
	p.must(err)
	for name, value := range o.Headers {
		request.Header.Set(name, value)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	p.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	p.must(err)
	if response.StatusCode != o.Response.Status || string(body) != o.Response.Body && response.StatusCode < 500 {
		p.server.Drain()
		said, _ := io.ReadAll(p.stderr)
		p.Fatalf("%s %s: status %d, body %q, want %d, %q; standard error:\n%s", o.Method, o.Path, response.StatusCode, body, o.Response.Status, o.Response.Body, said)
	}
	for name, want := range o.Response.Headers {
		if got := response.Header.Get(name); got != want {
			p.Errorf("%s %s: header %s: %q, want %q", o.Method, o.Path, name, got, want)
		}
	}
}
