package stream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/session"
)

// echo is a container whose every command is cat that says "end" on stderr when its input ends. Its
// last size is in sizes, and left tells of clients that went away.
type echo struct {
	code  int32
	err   error
	sizes chan [2]uint16
	left  chan struct{}
}

func (e *echo) Exec(ctx context.Context, id string, cmd []string, s session.Streams) (int32, error) {
	if s.NextSize != nil {
		go func() {
			for {
				w, h, ok := s.NextSize()
				if !ok {
					return
				}
				e.sizes <- [2]uint16{w, h}
			}
		}()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.Stdin != nil {
			io.Copy(s.Stdout, s.Stdin)
		}
	}()
	select {
	case <-done:
		if s.Stderr != nil {
			fmt.Fprintf(s.Stderr, "end of %s in %s", strings.Join(cmd, " "), id)
		}
		return e.code, e.err
	case <-ctx.Done():
		close(e.left)
		return 0, ctx.Err()
	}
}

func (e *echo) Attach(ctx context.Context, id string, s session.Streams) error {
	_, err := e.Exec(ctx, id, []string{"init"}, s)
	return err
}

func listen(t *testing.T, e *echo, change ...func(*Options)) *Server {
	t.Helper()
	e.sizes, e.left = make(chan [2]uint16, 10), make(chan struct{})
	o := Options{
		Address: "127.0.0.1", Sessions: e, Logger: slog.New(slog.DiscardHandler),
		NetNS: func(string) (string, error) { return "", nil },
	}
	for _, c := range change {
		c(&o)
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *Server) exec(t *testing.T, tty bool) string {
	t.Helper()
	resp, err := s.Exec(&runtime.ExecRequest{ContainerId: "box", Cmd: []string{"a", "cat"}, Stdin: true, Stdout: true, Stderr: !tty, Tty: tty})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetUrl()
}

// What no process can be called is refused when it is asked for.
func TestCommandsThatCannotBe(t *testing.T) {
	s := listen(t, &echo{})
	for _, cmd := range [][]string{nil, {"a\x00"}, {"a", "b\x00c"}} {
		if _, err := s.Exec(&runtime.ExecRequest{ContainerId: "box", Cmd: cmd, Stdout: true}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", cmd, err)
		}
	}
}

// upgrade connects by SPDY.
func upgrade(t *testing.T, url string, tls *tls.Config, protocol string) httpstream.Connection {
	t.Helper()
	rt, err := spdy.NewRoundTripper(tls)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, err := rt.NewConnection(resp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func create(t *testing.T, conn httpstream.Connection, kind string, more ...string) httpstream.Stream {
	t.Helper()
	h := http.Header{}
	h.Set("streamType", kind)
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	stream, err := conn.CreateStream(h)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func all(t *testing.T, r io.Reader) string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(r)
		got <- string(data)
	}()
	select {
	case text := <-got:
		return text
	case <-time.After(time.Minute):
		t.Fatal("a stream does not end")
		return ""
	}
}

func status(t *testing.T, text string) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("status %q: %v", text, err)
	}
	return s
}

func expectCode(t *testing.T, s metav1.Status, code string) {
	t.Helper()
	if s.Status != metav1.StatusFailure || s.Reason != "NonZeroExitCode" || s.Details == nil || len(s.Details.Causes) != 1 ||
		s.Details.Causes[0].Type != "ExitCode" || s.Details.Causes[0].Message != code {
		t.Errorf("status %+v, want exit code %s", s, code)
	}
}

func TestSPDY(t *testing.T) {
	for _, protocol := range []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io"} {
		t.Run(protocol, func(t *testing.T) {
			s := listen(t, &echo{code: 7})
			conn := upgrade(t, s.exec(t, false), nil, protocol)
			end := create(t, conn, "error")
			in, out, errs := create(t, conn, "stdin"), create(t, conn, "stdout"), create(t, conn, "stderr")
			io.WriteString(in, "there and back")
			in.Close()
			if got := all(t, out); got != "there and back" {
				t.Errorf("stdout %q", got)
			}
			if got := all(t, errs); got != "end of a cat in box" {
				t.Errorf("stderr %q", got)
			}
			switch text := all(t, end); protocol {
			case "v4.channel.k8s.io":
				expectCode(t, status(t, text), "7")
			default:
				if !strings.Contains(text, "exit code 7") {
					t.Errorf("error %q", text)
				}
			}
		})
	}
}

// Clients take a code that is no byte for a fault of the protocol. A guest's may be any number.
func TestLargeExitCodes(t *testing.T) {
	for code, want := range map[int32]string{255: "255", 256: "255", 259: "3", -1: "255"} {
		s := listen(t, &echo{code: code})
		conn := upgrade(t, s.exec(t, false), nil, "v4.channel.k8s.io")
		end, in := create(t, conn, "error"), create(t, conn, "stdin")
		create(t, conn, "stdout")
		create(t, conn, "stderr")
		in.Close()
		ws := dialWS(t, s.exec(t, false), "v5.channel.k8s.io")
		send(t, ws, "\xff\x00") // the end of stdin
		for _, text := range []string{all(t, end), channels(t, ws)[3]} {
			expectCode(t, status(t, text), want)
			if told := fmt.Sprintf("exit code %d", code); !strings.Contains(text, told) {
				t.Errorf("status %s, want %q in it", text, told)
			}
		}
	}
}

func TestSPDYResize(t *testing.T) {
	e := &echo{}
	s := listen(t, e)
	conn := upgrade(t, s.exec(t, true), nil, "v4.channel.k8s.io")
	create(t, conn, "error")
	in, _ := create(t, conn, "stdin"), create(t, conn, "stdout")
	io.WriteString(create(t, conn, "resize"), `{"Width":120,"Height":40}`)
	if got := <-e.sizes; got != [2]uint16{120, 40} {
		t.Errorf("size %v", got)
	}
	in.Close()
}

// dialWS connects by WebSocket.
func dialWS(t *testing.T, url string, protocols ...string) *websocket.Conn {
	t.Helper()
	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(url, "http"), "http://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	config.Protocol = protocols
	ws, err := websocket.DialConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	ws.SetDeadline(time.Now().Add(time.Minute))
	return ws
}

// channels reads messages until the end and puts each channel's together.
func channels(t *testing.T, ws *websocket.Conn) map[byte]string {
	t.Helper()
	got := map[byte]string{}
	for {
		var message []byte
		err := websocket.Message.Receive(ws, &message)
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got[message[0]] += string(message[1:])
	}
}

func send(t *testing.T, ws *websocket.Conn, message string) {
	t.Helper()
	if err := websocket.Message.Send(ws, []byte(message)); err != nil {
		t.Fatal(err)
	}
}

func TestV5(t *testing.T) {
	for name, attach := range map[string]bool{"exec": false, "attach": true} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, &echo{code: 9})
			url, command := s.exec(t, false), "a cat"
			if attach {
				resp, err := s.Attach(&runtime.AttachRequest{ContainerId: "box", Stdin: true, Stdout: true, Stderr: true})
				if err != nil {
					t.Fatal(err)
				}
				url, command = resp.GetUrl(), "init"
			}
			ws := dialWS(t, url, "v5.channel.k8s.io", "v4.channel.k8s.io")
			if got := ws.Config().Protocol; len(got) != 1 || got[0] != "v5.channel.k8s.io" {
				t.Errorf("protocol %q", got)
			}
			var hello []byte
			if err := websocket.Message.Receive(ws, &hello); err != nil || string(hello) != "\x01" {
				t.Errorf("the first message is %q, %v", hello, err)
			}
			send(t, ws, "\x00there ")
			send(t, ws, "\x00and back")
			send(t, ws, "\xff\x00") // the end of stdin
			got := channels(t, ws)
			if got[1] != "there and back" || got[2] != "end of "+command+" in box" {
				t.Errorf("got %q", got)
			}
			if attach {
				if st := status(t, got[3]); st.Status != metav1.StatusSuccess {
					t.Errorf("status %+v", st)
				}
				return
			}
			expectCode(t, status(t, got[3]), "9")
		})
	}
}

func TestV5ResizeAndError(t *testing.T) {
	e := &echo{err: errors.New("it is broken")}
	s := listen(t, e)
	ws := dialWS(t, s.exec(t, true), "v5.channel.k8s.io")
	send(t, ws, "\x04"+`{"Width":120,"Height":40}`)
	if got := <-e.sizes; got != [2]uint16{120, 40} {
		t.Errorf("size %v", got)
	}
	send(t, ws, "\xff\x00")
	if st := status(t, channels(t, ws)[3]); st.Reason != metav1.StatusReasonInternalError || !strings.Contains(st.Message, "it is broken") {
		t.Errorf("status %+v", st)
	}
}

// Version 4 and older ones have no end of input but that of the connection.
func TestOldWebSockets(t *testing.T) {
	for _, protocol := range []string{"v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io", ""} {
		t.Run(protocol, func(t *testing.T) {
			e := &echo{}
			s := listen(t, e)
			var protocols []string
			if protocol != "" {
				protocols = []string{protocol}
			}
			ws := dialWS(t, s.exec(t, false), protocols...)
			text, based := "\x00there", strings.Contains(protocol, "base64")
			if based {
				text = "0" + base64.StdEncoding.EncodeToString([]byte("there"))
			}
			send(t, ws, text)
			for {
				var message []byte
				if err := websocket.Message.Receive(ws, &message); err != nil {
					t.Fatal(err)
				}
				if len(message) == 1 {
					continue // it says that the connection stands
				}
				got := string(message[1:])
				if based {
					data, err := base64.StdEncoding.DecodeString(got)
					if err != nil {
						t.Fatal(err)
					}
					got = string(data)
				}
				if got != "there" {
					t.Errorf("got %q", got)
				}
				break
			}
			ws.Close()
		})
	}
}

// A session learns that its client has gone, however it came, also while the command does not take
// its input.
func TestClientLeaves(t *testing.T) {
	for _, protocol := range []string{"spdy", "v4.channel.k8s.io", "v5.channel.k8s.io"} {
		t.Run(protocol, func(t *testing.T) {
			e := &blocked{begun: make(chan struct{})}
			s := listen(t, &e.echo, func(o *Options) { o.Sessions = e })
			resp, err := s.Exec(&runtime.ExecRequest{ContainerId: "box", Cmd: []string{"sleep"}, Stdin: true, Stdout: true})
			if err != nil {
				t.Fatal(err)
			}
			if protocol == "spdy" {
				conn := upgrade(t, resp.GetUrl(), nil, "v4.channel.k8s.io")
				create(t, conn, "error")
				in, _ := create(t, conn, "stdin"), create(t, conn, "stdout")
				<-e.begun
				io.WriteString(in, strings.Repeat("not taken", 10000))
				conn.Close()
			} else {
				ws := dialWS(t, resp.GetUrl(), protocol)
				<-e.begun
				send(t, ws, "\x00not taken")
				send(t, ws, "\x00not taken")
				ws.Close()
			}
			select {
			case <-e.left:
			case <-time.After(time.Minute):
				t.Error("the session does not notice")
			}
		})
	}
}

// blocked is a container whose commands end with their clients only.
type blocked struct {
	echo
	begun chan struct{}
}

func (b *blocked) Exec(ctx context.Context, _ string, _ []string, _ session.Streams) (int32, error) {
	close(b.begun)
	<-ctx.Done()
	close(b.left)
	return 0, ctx.Err()
}

// loud is a container whose commands write much, read nothing and end.
type loud struct{ echo }

const loudly = 1 << 20

func (*loud) Exec(_ context.Context, _ string, _ []string, s session.Streams) (int32, error) {
	_, err := s.Stdout.Write(make([]byte, loudly))
	return 7, err
}

// A client that sends what nobody reads gets all output and the exit code, also if it reads slowly.
func TestInputThatNobodyReads(t *testing.T) {
	cert, key := certificate(t)
	data, err := os.ReadFile(cert)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(data) {
		t.Fatal(err)
	}
	trusted := &tls.Config{RootCAs: pool}
	for name, change := range map[string]func(*Options){
		"plain": func(o *Options) { o.Sessions = &loud{} },
		"tls":   func(o *Options) { o.Sessions, o.CertFile, o.KeyFile = &loud{}, cert, key },
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, &echo{}, change)
			config, err := websocket.NewConfig("ws"+strings.TrimPrefix(s.exec(t, false), "http"), "http://localhost/")
			if err != nil {
				t.Fatal(err)
			}
			config.Protocol, config.TlsConfig = []string{"v5.channel.k8s.io"}, trusted
			ws, err := websocket.DialConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			defer ws.Close()
			go func() {
				for websocket.Message.Send(ws, make([]byte, 1<<10)) == nil { // by channel 0, which is stdin
				}
			}()
			time.Sleep(time.Second) // the command has ended
			out := 0
			for {
				var message []byte
				if err := websocket.Message.Receive(ws, &message); err != nil {
					t.Fatalf("%v after %d bytes", err, out)
				}
				if message[0] == 3 {
					expectCode(t, status(t, string(message[1:])), "7")
					break
				}
				out += len(message) - 1
			}
			if out != loudly {
				t.Errorf("%d bytes, want %d", out, loudly)
			}
		})
	}
}

func TestStopEndsSessions(t *testing.T) {
	e := &blocked{begun: make(chan struct{})}
	s := listen(t, &e.echo, func(o *Options) { o.Sessions = e })
	ws := dialWS(t, s.exec(t, false), "v5.channel.k8s.io")
	var hello []byte
	if err := websocket.Message.Receive(ws, &hello); err != nil {
		t.Fatal(err)
	}
	<-e.begun
	s.Stop()
	select {
	case <-e.left:
	default:
		t.Error("the session goes on")
	}
	if _, err := net.Dial("tcp", s.base.Host); err == nil {
		t.Error("it still listens")
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts tokens
		add := func() string {
			token, err := ts.add("request")
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		first := add()
		if r, ok := ts.take(first); !ok || r != "request" {
			t.Errorf("%v, %v", r, ok)
		}
		if _, ok := ts.take(first); ok {
			t.Error("it is good for twice")
		}
		late := add()
		time.Sleep(tokenLife)
		if _, ok := ts.take(late); ok {
			t.Error("it is good for ever")
		}
		for range maxWaiting {
			add()
		}
		if _, err := ts.add("one more"); !errdefs.IsResourceExhausted(err) {
			t.Errorf("one too many: %v", err)
		}
		time.Sleep(tokenLife)
		add()
		if len(ts.waiting) != 1 {
			t.Errorf("%d tokens are left", len(ts.waiting))
		}
	})
}

func TestWrongToken(t *testing.T) {
	s := listen(t, &echo{})
	url := s.exec(t, false)
	for _, wrong := range []string{"http://" + s.base.Host + "/exec/none", strings.Replace(url, "/exec/", "/attach/", 1), url} {
		resp, err := http.Get(wrong)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound { // the second one has used the token up
			t.Errorf("%s: %s", wrong, resp.Status)
		}
	}
}

func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	s := listen(t, &echo{}, func(o *Options) { o.CertFile, o.KeyFile = cert, key })
	url := s.exec(t, false)
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Fatalf("address %q", url)
	}
	pool := x509.NewCertPool()
	data, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(data) {
		t.Fatal(err)
	}
	conn := upgrade(t, url, &tls.Config{RootCAs: pool}, "v4.channel.k8s.io")
	end := create(t, conn, "error")
	in, out, _ := create(t, conn, "stdin"), create(t, conn, "stdout"), create(t, conn, "stderr")
	io.WriteString(in, "hidden")
	in.Close()
	if got := all(t, out); got != "hidden" {
		t.Errorf("got %q", got)
	}
	if st := status(t, all(t, end)); st.Status != metav1.StatusSuccess {
		t.Errorf("status %+v", st)
	}
	if _, err := Listen(Options{Address: "127.0.0.1", CertFile: "none", KeyFile: "none", Logger: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("it listens without its certificate")
	}
}

func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "cert"), filepath.Join(dir, "key")
}

func TestReachable(t *testing.T) {
	for at, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "192.0.2.1:80": "192.0.2.1:80", "0.0.0.0:80": "127.0.0.1:80", "[::]:80": "[::1]:80", "[2001:db8::1]:80": "[2001:db8::1]:80",
	} {
		if got := reachable(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(at))); got != want {
			t.Errorf("%s is reached at %s, want %s", at, got, want)
		}
	}
}

// say answers each connection with what it got, once its client has ended its side.
func say(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			data, _ := io.ReadAll(conn)
			io.WriteString(conn, "got "+string(data))
		}()
	}
}

// forwarded opens a connection for port forwarding: by SPDY, or by SPDY in a WebSocket.
func forwarded(t *testing.T, s *Server, tunnel bool) httpstream.Connection {
	t.Helper()
	resp, err := s.PortForward(&runtime.PortForwardRequest{PodSandboxId: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	if !tunnel {
		return upgrade(t, resp.GetUrl(), nil, "portforward.k8s.io")
	}
	ws := dialWS(t, resp.GetUrl(), "SPDY/3.1+portforward.k8s.io")
	ws.PayloadType = websocket.BinaryFrame
	conn, err := spdy.NewClientConnection(ws)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ask forwards one connection to a port and returns what comes back, or the error.
func ask(t *testing.T, conn httpstream.Connection, request string, port int, text string) (answer, problem string) {
	t.Helper()
	headers := []string{"port", fmt.Sprint(port), "requestID", request}
	errs := create(t, conn, "error", headers...)
	errs.Close()
	data := create(t, conn, "data", headers...)
	io.WriteString(data, text)
	data.Close()
	return all(t, data), all(t, errs)
}

func TestPortForward(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go say(l)
	l6, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l6.Close()
	go say(l6)
	for name, tunnel := range map[string]bool{"spdy": false, "tunnel": true} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, &echo{})
			conn := forwarded(t, s, tunnel)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					to := []net.Listener{l, l6}[i%2].Addr().(*net.TCPAddr).Port
					text := strings.Repeat(fmt.Sprint(i), 10000)
					if answer, problem := ask(t, conn, fmt.Sprint(i), to, text); answer != "got "+text || problem != "" {
						t.Errorf("%d: %d bytes, problem %q", i, len(answer), problem)
					}
				})
			}
			wg.Wait()
			if answer, problem := ask(t, conn, "none", 1, ""); answer != "" || !strings.Contains(problem, "port 1 of the pod") {
				t.Errorf("where nobody listens: %q, %q", answer, problem)
			}
		})
	}
}

func TestPortForwardInNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: it makes a network namespace")
	}
	dir := t.TempDir()
	if err := netns.PinNamespaces(dir, netns.PinOptions{Net: true}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netns.UnpinNamespaces(dir); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(dir, netns.NetFile)
	for _, address := range []string{"127.0.0.1:7777", "[::1]:7778"} {
		var l net.Listener
		err := netns.Do(path, func() (err error) {
			l, err = net.Listen("tcp", address)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go say(l)
	}
	s := listen(t, &echo{}, func(o *Options) {
		o.NetNS = func(id string) (string, error) {
			if id != "pod" {
				return "", fmt.Errorf("sandbox %q: %w", id, errdefs.ErrNotFound)
			}
			return path, nil
		}
	})
	conn := forwarded(t, s, false)
	for _, port := range []int{7777, 7778} {
		if answer, problem := ask(t, conn, fmt.Sprint(port), port, "inside"); answer != "got inside" || problem != "" {
			t.Errorf("port %d: %q, %q", port, answer, problem)
		}
	}
	if _, err := dial(t.Context(), "", 7777); err == nil {
		t.Error("the port is reached from outside")
	}
	if _, err := dial(t.Context(), filepath.Join(dir, "none"), 7777); err == nil {
		t.Error("a namespace that is not there was entered")
	}
}

// TestForwardedNamespacesEnd finds no thread of this process in a pod's network namespace after
// connections to it: one that stays keeps the namespace, and with it the pod's link.
func TestForwardedNamespacesEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ns")
	if err := netns.PinNamespaces(dir, netns.PinOptions{Net: true}); err != nil {
		t.Fatal(err)
	}
	defer netns.UnpinNamespaces(dir)
	pod, err := os.Stat(filepath.Join(dir, netns.NetFile))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 { // each on a thread that happens to be free, the main one too
		if _, err := dial(t.Context(), filepath.Join(dir, netns.NetFile), 7777); err == nil {
			t.Fatal("somebody listens")
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for inside := -1; inside != 0; time.Sleep(10 * time.Millisecond) {
		threads, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil || len(threads) == 0 {
			t.Fatal("no threads", err)
		}
		inside = 0
		for _, thread := range threads {
			if at, err := os.Stat(thread); err == nil && os.SameFile(at, pod) {
				inside++
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d threads stay in the namespace", inside)
		}
	}
}
