package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// naps remembers pauses instead of making them.
type naps struct {
	mu   sync.Mutex
	took []time.Duration
}

func (n *naps) sleep(ctx context.Context, d time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.took = append(n.took, d)
	return context.Cause(ctx)
}

func (n *naps) total() (sum time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.took {
		sum += d
	}
	return sum
}

// blobOf is random content and its descriptor.
func blobOf(size int) ([]byte, ocispec.Descriptor) {
	data := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size)})
	r.Read(data)
	return data, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromBytes(data), Size: int64(size)}
}

// cut sends no more than n bytes of an answer and closes the connection.
type cut struct {
	http.ResponseWriter
	n int
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) > c.n {
		c.ResponseWriter.Write(p[:c.n]) // whatever comes of it, the connection goes
		http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.n -= len(p)
	return c.ResponseWriter.Write(p)
}

// whole serves data and knows no ranges.
func whole(w http.ResponseWriter, data []byte) {
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	w.Write(data)
}

// ranged serves data and knows ranges.
func ranged(w http.ResponseWriter, r *http.Request, data []byte) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// What a server may do to a blob. serve gets the number of the request, from 0.
func TestFetchOverBadLinks(t *testing.T) {
	data, desc := blobOf(5000)
	status := func(code int, retryAfter string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			w.WriteHeader(code)
		}
	}
	once := func(do func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 0 {
				do(w)
				return
			}
			ranged(w, r, data)
		}
	}
	always := func(do func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, _ *http.Request, _ int) { do(w) }
	}
	tests := []struct {
		name     string
		serve    func(w http.ResponseWriter, r *http.Request, n int)
		requests int
		class    func(error) bool // nil: it succeeds
		text     string
		short    bool // the reader ends too early, which the store finds out
		naps     func(time.Duration) bool
		// oneStream is for servers whose answers make sense in one order only.
		oneStream bool
	}{
		{name: "fine", serve: once(func(w http.ResponseWriter) { whole(w, data) }), requests: 1},
		{name: "cut again and again", requests: 10, serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			ranged(&cut{w, 512}, r, data)
		}},
		{name: "cut by a server without ranges", requests: 3, serve: func(w http.ResponseWriter, _ *http.Request, n int) {
			whole(&cut{w, (n + 1) * 2000}, data)
		}},
		{name: "cut by a server that takes ranges amiss", requests: 3, serve: func(w http.ResponseWriter, r *http.Request, n int) {
			switch {
			case r.Header.Get("Range") != "":
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			case n == 0:
				whole(&cut{w, 2000}, data)
			default:
				whole(w, data)
			}
		}},
		{name: "another range than was asked for", requests: 3, serve: func(w http.ResponseWriter, r *http.Request, n int) {
			switch {
			case r.Header.Get("Range") != "":
				w.Header().Set("Content-Range", "bytes 0-99/5000")
				w.WriteHeader(http.StatusPartialContent)
				w.Write(data[:100])
			case n == 0:
				whole(&cut{w, 2000}, data)
			default:
				whole(w, data)
			}
		}},
		{name: "less of the range than was asked for", requests: 4, oneStream: true, serve: func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 0 {
				whole(&cut{w, 2000}, data)
				return
			}
			from := 2000 + (n-1)*1000
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", from, from+999))
			w.WriteHeader(http.StatusPartialContent)
			w.Write(data[from : from+1000])
		}},
		{name: "stalls once", requests: 2, serve: func(w http.ResponseWriter, r *http.Request, n int) {
			if n > 0 {
				ranged(w, r, data)
				return
			}
			w.Header().Set("Content-Length", "5000")
			w.Write(data[:100])
			http.NewResponseController(w).Flush()
			<-r.Context().Done() // the client has given up
		}},
		{name: "no connection at first", requests: 2, serve: once(func(http.ResponseWriter) { panic(http.ErrAbortHandler) })},
		{name: "500 at first", requests: 2, serve: once(status(500, ""))},
		{name: "always 503", requests: 6, serve: always(status(503, "")), class: unavailable, text: "503 Service Unavailable (asked 6 times)",
			naps: func(d time.Duration) bool { return d >= 7*time.Second && d <= 16*time.Second }}, // half to all of 0.5+1+2+4+8
		{name: "429 with seconds", requests: 2, serve: once(status(429, "7")),
			naps: func(d time.Duration) bool { return d > 6900*time.Millisecond && d < 8*time.Second }},
		{name: "503 with a date", requests: 2, serve: once(status(503, time.Now().Add(20*time.Second).UTC().Format(http.TimeFormat))),
			naps: func(d time.Duration) bool { return d > 10*time.Second && d < 22*time.Second }},
		{name: "429 for ever", requests: 6, serve: always(status(429, "")), class: errdefs.IsResourceExhausted, text: "asked too often"},
		{name: "429 for too long", requests: 1, serve: always(status(429, "3600")), class: errdefs.IsResourceExhausted, text: "which is longer than the 2m0s that is waited"},
		{name: "401", requests: 1, serve: always(status(401, "")), class: errdefs.IsUnauthorized, naps: none},
		{name: "403", requests: 1, serve: always(status(403, "")), class: errdefs.IsPermissionDenied, naps: none},
		{name: "404", requests: 1, serve: always(status(404, "")), class: errdefs.IsNotFound, naps: none},
		{name: "a shorter length", requests: 1, serve: always(func(w http.ResponseWriter) { whole(w, data[:100]) }),
			class: errdefs.IsDataLoss, text: desc.Digest.String() + " is truncated: the server announces 100 bytes, the manifest says 5000", naps: none},
		{name: "a longer length", requests: 1, serve: always(func(w http.ResponseWriter) { whole(w, append(data[:5000:5000], 'x')) }),
			class: errdefs.IsDataLoss, text: "is corrupt: the server announces 5001 bytes", naps: none},
		{name: "a range of something longer", requests: 2, oneStream: true, class: errdefs.IsDataLoss, text: "announces 9999",
			serve: func(w http.ResponseWriter, r *http.Request, n int) {
				if n == 0 {
					whole(&cut{w, 2000}, data)
					return
				}
				w.Header().Set("Content-Range", "bytes 2000-4999/9999")
				w.WriteHeader(http.StatusPartialContent)
				w.Write(data[2000:])
			}},
		{name: "no length and too short", requests: 2, short: true, serve: always(func(w http.ResponseWriter) {
			w.Write(data[:100])
			http.NewResponseController(w).Flush()
		})},
		{name: "no length and endless", requests: 1, class: errdefs.IsDataLoss, text: "is longer than 5000 bytes", serve: always(func(w http.ResponseWriter) {
			for {
				if _, err := w.Write(data); err != nil {
					return
				}
				http.NewResponseController(w).Flush()
			}
		})},
	}
	for _, tt := range tests {
		for _, parts := range []bool{false, true} {
			if parts && tt.oneStream {
				continue
			}
			t.Run(fmt.Sprintf("%s/parts=%v", tt.name, parts), func(t *testing.T) {
				var n naps
				o := Options{StallTimeout: time.Minute, Sleep: n.sleep}
				if strings.Contains(tt.name, "stall") {
					o.StallTimeout = 50 * time.Millisecond
				}
				if parts {
					o.RangeThreshold, o.RangeSize, o.RangeMemory = 1000, 1000, 2000
				}
				var requests atomic.Int32
				host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
					tt.serve(w, r, int(requests.Add(1))-1)
				})
				got, err := fetch(t, o, host, desc)
				switch {
				case parts && strings.Contains(tt.name, "range") && tt.class == nil:
					// Servers that are at odds with ranges: only the outcome counts.
				case !parts && int(requests.Load()) != tt.requests:
					t.Errorf("%d requests, want %d", requests.Load(), tt.requests)
				case tt.naps != nil && !parts && !tt.naps(n.total()):
					t.Errorf("paused for %s", n.took)
				}
				switch {
				case tt.class != nil:
					if err == nil || !tt.class(err) || !parts && !strings.Contains(err.Error(), tt.text) {
						t.Errorf("got %v; want %q", err, tt.text)
					}
				case tt.short:
					if err != nil || len(got) >= len(data) {
						t.Errorf("%d bytes, %v; want fewer than there are", len(got), err)
					}
				case err != nil || !bytes.Equal(got, data):
					t.Errorf("%d bytes, right: %v, %v", len(got), bytes.Equal(got, data), err)
				}
			})
		}
	}
}

func none(d time.Duration) bool { return d == 0 }

func unavailable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Unavailable() && strings.HasPrefix(err.Error(), UnavailablePrefix)
}

// fetch resolves nothing: it asks for a blob and reads it.
func fetch(t *testing.T, o Options, host string, desc ocispec.Descriptor) ([]byte, error) {
	t.Helper()
	client := New(o)
	defer client.Close()
	r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Fetch(t.Context(), desc, 0)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(b)
	if cerr := b.Close(); cerr != nil {
		t.Error(cerr)
	}
	if client.parts.taken != 0 || len(client.parts.tokens) != 0 {
		t.Errorf("%d parts are still taken", client.parts.taken)
	}
	if len(client.turns.held)+len(client.turns.waiting) != 0 {
		t.Error("the fetch still counts")
	}
	return got, err
}

// At every byte, with and without ranges, going on from any offset.
func TestFetchCutAtEveryByte(t *testing.T) {
	data, desc := blobOf(40)
	for _, ranges := range []bool{true, false} {
		for at := range len(data) {
			var n atomic.Int32
			host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) == 1 {
					w = &cut{w, at}
				}
				if ranges {
					ranged(w, r, data)
				} else {
					whole(w, data)
				}
			})
			client := New(fast(Options{}))
			r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{})
			if err != nil {
				t.Fatal(err)
			}
			offset := at / 2
			b, err := r.Fetch(t.Context(), desc, int64(offset))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, data[offset:]) {
				t.Errorf("cut at %d, ranges %v: %d bytes of %d, %v", at, ranges, len(got), len(data)-offset, err)
			}
			b.Close()
			client.Close()
		}
	}
}

// Parts of a large blob come several at a time, in order, and take no more memory than they may.
func TestFetchInParts(t *testing.T) {
	data, desc := blobOf(100_000)
	var now, most, faults atomic.Int32
	serveParts := func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		if n := faults.Add(1); n%5 == 0 {
			w = &cut{w, 700}
		} else if n%7 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		time.Sleep(time.Millisecond)
		ranged(w, r, data)
	}
	tests := []struct {
		name  string
		serve http.HandlerFunc
		many  bool
	}{
		{"with faults", serveParts, true},
		{"a server without ranges", func(w http.ResponseWriter, _ *http.Request) { whole(w, data) }, false},
		{"a server that gives ranges up", func(w http.ResponseWriter, r *http.Request) {
			if faults.Add(1) > 5 {
				r.Header.Del("Range")
			}
			ranged(w, r, data)
		}, false},
	}
	for _, tt := range tests {
		for _, offset := range []int64{0, 1, 4095, 4096, 99_000} {
			most.Store(0)
			faults.Store(0)
			host, _ := serve(t, tt.serve)
			client := New(fast(Options{RangeThreshold: 8192, RangeSize: 4096, RangeMemory: 4 * 4096}))
			r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{})
			if err != nil {
				t.Fatal(err)
			}
			b, err := r.Fetch(t.Context(), desc, offset)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(b)
			if err != nil || !bytes.Equal(got, data[offset:]) {
				t.Errorf("%s from %d: %d bytes, %v", tt.name, offset, len(got), err)
			}
			b.Close()
			if n := most.Load(); tt.many && offset < 5000 && (n < 2 || n > 5) {
				t.Errorf("%s: %d requests at a time", tt.name, n)
			}
			if client.parts.taken != 0 {
				t.Errorf("%s: %d buffers are taken", tt.name, client.parts.taken)
			}
			client.Close()
		}
	}
}

// Who leaves in the middle leaves nothing running, and blobs that share the memory do not wait for
// each other for ever.
func TestPartsOfManyBlobs(t *testing.T) {
	data, desc := blobOf(50_000)
	host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { ranged(w, r, data) })
	client := New(fast(Options{RangeThreshold: 8192, RangeSize: 4096, RangeMemory: 2 * 4096, MaxFetches: 6}))
	defer client.Close()
	r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b, err := r.Fetch(ctx, desc, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Close()
			switch i % 3 {
			case 0:
				if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			case 1:
				io.CopyN(io.Discard, b, 10_000) // and leave
			case 2:
				io.CopyN(io.Discard, b, 10_000)
				cancel()
				if _, err := io.ReadAll(b); !errors.Is(err, context.Canceled) {
					t.Errorf("after cancel: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if client.parts.taken != 0 || client.parts.free != nil || len(client.parts.tokens) != 0 {
		t.Errorf("taken %d, kept %d", client.parts.taken, len(client.parts.free))
	}
}

// What HTTP/2 calls a broken transfer is one: it is continued, and in the end the registry is not
// available.
func TestFetchOverHTTP2(t *testing.T) {
	data, desc := blobOf(300_000)
	a := newAuthority(t)
	var requests atomic.Int32
	var broken atomic.Bool
	host := serveProtocol(t, a, false, 2, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the protocol is %s", r.Proto)
		}
		requests.Add(1)
		if broken.Load() {
			panic(http.ErrAbortHandler)
		}
		ranged(&cut{w, 100_000}, r, data)
	})
	o := fast(Options{HostsDir: writeTree(t, map[string]string{strings.ReplaceAll(host, ":", "_") + "_/ca.crt": a.pem()})})
	if got, err := fetch(t, o, host, desc); err != nil || !bytes.Equal(got, data) || requests.Load() != 3 {
		t.Errorf("%d bytes in %d requests: %v", len(got), requests.Load(), err)
	}
	requests.Store(0)
	broken.Store(true)
	if _, err := fetch(t, o, host, desc); !unavailable(err) || requests.Load() != 6 {
		t.Errorf("%d requests: %v", requests.Load(), err)
	}
	closed := serveProtocol(t, a, true, 2, serveManifest)
	o.HostsDir = writeTree(t, map[string]string{strings.ReplaceAll(closed, ":", "_") + "_/ca.crt": a.pem()})
	if _, err := fetch(t, o, closed, desc); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that wants a certificate: %v", err)
	}
}

// A connection of HTTP/2 that has died without a word is given up: a transfer continues over
// another.
func TestFetchAfterADeadConnection(t *testing.T) {
	data, desc := blobOf(300_000)
	a := newAuthority(t)
	server := serveProtocol(t, a, false, 2, func(w http.ResponseWriter, r *http.Request) { ranged(w, r, data) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var connections atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			first := connections.Add(1) == 1
			to, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			defer to.Close()
			go io.Copy(to, c)
			go func() {
				if first {
					io.CopyN(c, to, 100_000)
					return
				}
				io.Copy(c, to)
			}()
		}
	}()
	host := l.Addr().String()
	o := fast(Options{
		StallTimeout: 400 * time.Millisecond,
		HostsDir:     writeTree(t, map[string]string{strings.ReplaceAll(host, ":", "_") + "_/ca.crt": a.pem()}),
	})
	if got, err := fetch(t, o, host, desc); err != nil || !bytes.Equal(got, data) || connections.Load() != 2 {
		t.Errorf("%d bytes over %d connections: %v", len(got), connections.Load(), err)
	}
}

func TestFetchesAtATime(t *testing.T) {
	data, desc := blobOf(1000)
	var now, most atomic.Int32
	host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		time.Sleep(5 * time.Millisecond)
		now.Add(-1)
		ranged(w, r, data)
	})
	client := New(fast(Options{MaxFetches: 2}))
	defer client.Close()
	var wg sync.WaitGroup
	for range 10 {
		r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			b, err := r.Fetch(t.Context(), desc, 0)
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, b)
			b.Close()
		})
	}
	wg.Wait()
	if n := most.Load(); n > 2 {
		t.Errorf("%d at a time", n)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": -1, "0": 0, "5": 5 * time.Second, " 5 ": 5 * time.Second, "-5": -1, "5s": -1, "soon": -1, "1.5": -1,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0, "99999999999": -1,
	} {
		h := http.Header{}
		h.Set("Retry-After", v)
		d, ok := retryAfter(h, now)
		if !ok {
			d = -1
		}
		if d != want {
			t.Errorf("%q: %s, want %s", v, d, want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 500 * time.Millisecond, 1: time.Second, 3: 4 * time.Second, 6: 30 * time.Second, 1000: 30 * time.Second} {
		seen := make(map[time.Duration]bool)
		for range 20 {
			d := backoff(n)
			if d < want/2 || d > want {
				t.Errorf("%d: %s, want %s to %s", n, d, want/2, want)
			}
			seen[d] = true
		}
		if len(seen) < 2 {
			t.Errorf("%d: always the same", n)
		}
	}
}

// While one server wants to be left alone another is asked, and for each it is kept who gave what.
func TestMirrorThatWantsToBeLeftAlone(t *testing.T) {
	data, desc := blobOf(100)
	var refusing atomic.Bool
	refusing.Store(true)
	mirror, atMirror := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if refusing.Load() {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		ranged(w, r, data)
	})
	registry, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { ranged(w, r, data) })
	var n naps
	client := New(Options{Sleep: n.sleep, Mirrors: map[string][]hosts.Mirror{registry: {{Scheme: "http", Host: mirror}}}})
	defer client.Close()
	for range 3 {
		r, err := client.Repository(t.Context(), registry+"/app:v1", Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Fetch(t.Context(), desc, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		if got := r.Served()[desc.Digest]; got != registry {
			t.Errorf("served by %s", got)
		}
	}
	if got := atMirror.Load(); got != 1 || n.total() != 0 {
		t.Errorf("the mirror was asked %d times, and we paused for %s", got, n.took)
	}
}

func TestRefuse(t *testing.T) {
	data, desc := blobOf(100)
	bad := append([]byte{}, data...)
	bad[50]++
	mirror, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { ranged(w, r, bad) })
	registry, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { ranged(w, r, data) })
	client := New(fast(Options{Mirrors: map[string][]hosts.Mirror{registry: {{Scheme: "http", Host: mirror}}}}))
	defer client.Close()
	r, err := client.Repository(t.Context(), registry+"/app:v1", Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	read := func() []byte {
		b, err := r.Fetch(t.Context(), desc, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		got, err := io.ReadAll(b)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if !bytes.Equal(read(), bad) || !r.Refuse(desc.Digest) {
		t.Fatal("the mirror is asked first, and there is another to ask")
	}
	if !bytes.Equal(read(), data) || r.Refuse(desc.Digest) {
		t.Error("then the registry is, and nobody is left")
	}
	if _, err := r.Fetch(t.Context(), desc, 0); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("with nobody left: %v", err)
	}
}

func TestRefuseOfWhatNobodyServed(t *testing.T) {
	client := New(Options{})
	defer client.Close()
	r, err := client.Repository(t.Context(), "r.io/app:v1", Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Refuse(digest.FromString("x")) {
		t.Error("there is another to ask for what nobody has served")
	}
}
