package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// must fails the test for an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// randomBytes do not compress.
func randomBytes(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// image is an image of layers of random bytes.
func image(t *testing.T, sizes ...int) v1.Image {
	t.Helper()
	var layers []v1.Layer
	for i, n := range sizes {
		layers = append(layers, must[v1.Layer](t)(oci.Layer(oci.Text(fmt.Sprintf("file%d", i), string(randomBytes(n, byte(i)))))))
	}
	return must[v1.Image](t)(oci.Image(oci.Host(), v1.Config{Cmd: []string{"/file0"}}, layers...))
}

func push(t *testing.T, host, repo string, img v1.Image, options ...remote.Option) string {
	t.Helper()
	ref := must[name.Reference](t)(name.ParseReference(host + "/" + repo))
	if err := remote.Write(ref, img, options...); err != nil {
		t.Fatal(err)
	}
	return host + "/" + repo
}

// store opens an image store whose pauses take no time.
func store(t *testing.T, root string, o registry.Options) *images.Service {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts overlayfs: run it as root")
	}
	if o.Sleep == nil {
		o.Sleep = func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = time.Minute // nothing stalls that long on a machine that is busy
	}
	s := must[*images.Service](t)(images.Open(images.Options{
		Root: root, Registry: o,
		Handlers: []images.HandlerPlatforms{{Name: "runc", Platforms: []ocispec.Platform{{OS: "linux", Architecture: runtime.GOARCH}}, Default: true}},
	}))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// backends are the registries that the faults are put before.
func backends(t *testing.T) map[string]string {
	t.Helper()
	inProcess := must[*oci.Registry](t)(oci.Serve("127.0.0.1:0"))
	t.Cleanup(func() { inProcess.Close() })
	d := distribution(t, DistributionOptions{})
	return map[string]string{"in-process": inProcess.Host, "docker-registry": d.Host}
}

func distribution(t *testing.T, o DistributionOptions) *Distribution {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	d := must[*Distribution](t)(StartDistribution(t.Context(), o))
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// front starts a proxy before a registry.
func front(t *testing.T, backend string) (*Proxy, string) {
	t.Helper()
	p := must[*Proxy](t)(NewProxy("http://" + backend))
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return p, strings.TrimPrefix(srv.URL, "http://")
}

// intact checks that an image's files are what was pushed.
func intact(t *testing.T, s *images.Service, img images.Image, sizes ...int) {
	t.Helper()
	key := fmt.Sprint("check-", rand.Int())
	if _, err := s.PrepareRootFS(t.Context(), key, img); err != nil {
		t.Fatal(err)
	}
	err := s.WithRootFS(t.Context(), key, func(root string) error {
		for i, n := range sizes {
			got, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("file%d", i)))
			if err != nil || !slices.Equal(got, randomBytes(n, byte(i))) {
				t.Errorf("file%d holds %d bytes that are not those pushed: %v", i, len(got), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.RemoveRootFS(t.Context(), key); err != nil {
		t.Error(err)
	}
}

func unavailable(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), registry.UnavailablePrefix) && errors.Unwrap(err) == nil
}

// Every fault before every registry: what can be got over is, and what cannot is named and leaves a
// store that the next pull finds in order.
func TestPullThroughFaults(t *testing.T) {
	sizes := []int{100_000, 400_000, 3000}
	img := image(t, sizes...)
	big := must[[]v1.Layer](t)(img.Layers())[1]
	blob := "/blobs/" + must[v1.Hash](t)(big.Digest()).String()
	tests := []struct {
		name  string
		fault Fault
		class func(error) bool // nil: the pull succeeds
		text  string
	}{
		{"none", Fault{Path: "/none/"}, nil, ""},
		{"429 with Retry-After", Fault{Times: 3, Do: Status(429, "1")}, nil, ""},
		{"429 with a date", Fault{Path: "/manifests/", Times: 1, Do: Status(429, time.Now().Add(3*time.Second).UTC().Format(http.TimeFormat))}, nil, ""},
		{"429 for ever", Fault{Path: blob, Do: Status(429, "")}, errdefs.IsResourceExhausted, "429 Too Many Requests"},
		{"429 for an hour", Fault{Path: "/manifests/", Do: Status(429, "3600")}, errdefs.IsResourceExhausted, "longer than the 2m0s"},
		{"500 at times", Fault{Skip: 2, Times: 2, Do: Status(500, "")}, nil, ""},
		{"500 for ever", Fault{Path: blob, Do: Status(500, "")}, unavailable, "500 Internal Server Error"},
		{"503 for the manifest", Fault{Path: "/manifests/", Do: Status(503, "")}, unavailable, "503 Service Unavailable"},
		{"401", Fault{Path: blob, Do: Status(401, "")}, errdefs.IsUnauthorized, "401"},
		{"403", Fault{Path: blob, Do: Status(403, "")}, errdefs.IsPermissionDenied, "403"},
		{"404 for a blob", Fault{Path: blob, Do: Status(404, "")}, errdefs.IsNotFound, "404"},
		{"cut", Fault{Path: blob, Times: 1, Do: Cut(1234)}, nil, ""},
		{"cut before the first byte", Fault{Path: blob, Times: 2, Do: Cut(0)}, nil, ""},
		{"cut again and again", Fault{Path: "/blobs/", Method: "GET", Do: Cut(30_000)}, nil, ""},
		{"cut for ever without a byte", Fault{Path: blob, Do: Cut(0)}, unavailable, ""},
		{"stalls", Fault{Path: blob, Times: 1, Do: Stall(50_000)}, nil, ""},
		{"stalls for ever", Fault{Path: blob, Do: Stall(0)}, unavailable, "stalled"},
		{"slow", Fault{Path: blob, Do: Slow(50_000, 5*time.Millisecond)}, nil, ""},
		{"no ranges", Fault{Path: blob, Times: 1, Do: Cut(100_000)}, nil, ""},
		{"corrupt", Fault{Path: blob, Do: Corrupt(200_000)}, errdefs.IsDataLoss, "is corrupt: its digest is"},
		{"corrupt manifest", Fault{Path: "/manifests/", Method: "GET", Do: Corrupt(20)}, errdefs.IsDataLoss, "is corrupt"},
		{"announced too long", Fault{Path: blob, Do: Length(10)}, errdefs.IsDataLoss, "is corrupt: the server announces"},
		{"announced too short", Fault{Path: blob, Do: Length(-10)}, errdefs.IsDataLoss, "is truncated: the server announces"},
		{"endless", Fault{Path: blob, Do: Endless()}, errdefs.IsDataLoss, "is longer than"},
	}
	for backend, host := range backends(t) {
		proxy, at := front(t, host)
		push(t, host, "app:v1", img)
		for _, tt := range tests {
			for _, parts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/parts=%v", backend, tt.name, parts), func(t *testing.T) {
					o := registry.Options{RangeThreshold: -1}
					if parts {
						o = registry.Options{RangeThreshold: 150_000, RangeSize: 64_000, RangeMemory: 256_000}
					}
					if strings.HasPrefix(tt.name, "stalls") {
						o.StallTimeout = 300 * time.Millisecond
					}
					s := store(t, t.TempDir(), o)
					proxy.Set(tt.fault)
					got, err := s.Pull(t.Context(), images.PullRequest{Ref: at + "/app:v1"})
					if tt.class != nil {
						if parts && (strings.HasPrefix(tt.name, "announced") || tt.name == "endless" || tt.name == "corrupt") {
							// The fault is at another byte of each part, so the text may be
							// another.
						} else if err == nil || !tt.class(err) || !strings.Contains(err.Error(), tt.text) {
							t.Fatalf("Pull: %v; want %q", err, tt.text)
						}
						if list, _ := s.List(t.Context()); len(list) != 0 && err != nil {
							t.Errorf("%d images are listed", len(list))
						}
						proxy.Set()
						got, err = s.Pull(t.Context(), images.PullRequest{Ref: at + "/app:v1"})
					}
					if err != nil {
						t.Fatalf("Pull: %v", err)
					}
					intact(t, s, got, sizes...)
				})
			}
		}
	}
}

// A pull that broke off goes on behind a restart, and no byte of a blob comes twice.
func TestResumeAcrossARestart(t *testing.T) {
	sizes := []int{10, 500_000}
	img := image(t, sizes...)
	blob := must[v1.Hash](t)(must[[]v1.Layer](t)(img.Layers())[1].Digest()).String()
	for backend, host := range backends(t) {
		proxy, at := front(t, host)
		push(t, host, "app:v1", img)
		root := t.TempDir()
		proxy.Set(Fault{Path: blob, Times: 1, Do: Cut(200_000)}, Fault{Path: blob, Do: Status(503, "")})
		first := must[*images.Service](t)(images.Open(images.Options{
			Root: root, Registry: registry.Options{Retries: -1, Sleep: func(context.Context, time.Duration) error { return nil }},
			Handlers: []images.HandlerPlatforms{{Name: "runc", Platforms: []ocispec.Platform{{OS: "linux", Architecture: runtime.GOARCH}}, Default: true}},
		}))
		if _, err := first.Pull(t.Context(), images.PullRequest{Ref: at + "/app:v1"}); !unavailable(err) {
			t.Fatalf("%s: Pull: %v", backend, err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		proxy.Set()
		s := store(t, root, registry.Options{})
		got := must[images.Image](t)(s.Pull(t.Context(), images.PullRequest{Ref: at + "/app:v1"}))
		intact(t, s, got, sizes...)
		var asked []string
		for _, r := range proxy.Requests() {
			if strings.Contains(r, blob) {
				asked = append(asked, r)
			}
		}
		if len(asked) != 1 || !strings.Contains(asked[0], " bytes=2") && !strings.Contains(asked[0], " bytes=19") && !strings.Contains(asked[0], " bytes=18") {
			t.Errorf("%s: the blob was asked for with %q", backend, asked)
		}
	}
}

// Blobs of a redirecting registry come from elsewhere, and elsewhere sees no credentials.
func TestRedirectToAnotherHost(t *testing.T) {
	dir := t.TempDir()
	d := distribution(t, DistributionOptions{Dir: dir, Htpasswd: htpasswd(t)})
	open := distribution(t, DistributionOptions{Dir: t.TempDir()})
	img := image(t, 1000, 70_000)
	push(t, d.Host, "app:v1", img, remote.WithAuth(basic))
	push(t, open.Host, "app:v1", img)
	var mu sync.Mutex
	var leaked []string
	elsewhere := must[*Proxy](t)(NewProxy("http://" + open.Host))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if a := r.Header.Get("Authorization"); a != "" {
			leaked = append(leaked, a)
		}
		mu.Unlock()
		elsewhere.ServeHTTP(w, r)
	}))
	defer srv.Close()
	elsewhere.Set(Fault{Path: "/blobs/", Method: "GET", Do: Cut(20_000)})
	proxy, at := front(t, d.Host)
	proxy.Set(Fault{Path: "/blobs/", Do: Redirect(srv.URL)})
	s := store(t, t.TempDir(), registry.Options{})
	got := must[images.Image](t)(s.Pull(t.Context(), images.PullRequest{Ref: at + "/app:v1", Auth: registry.Credentials{Username: "u", Password: "s3cr3t"}}))
	intact(t, s, got, 1000, 70_000)
	if len(leaked) > 0 {
		t.Errorf("another host saw %q", leaked)
	}
	if n := len(elsewhere.Requests()); n < 3 {
		t.Errorf("%d requests were redirected", n)
	}
}

// Always on an image that is present costs one HEAD; concurrent pulls of different images share
// their blobs.
func TestSharingAndTheCostOfAlways(t *testing.T) {
	base, own1, own2 := oci.Text("base", string(randomBytes(300_000, 1))), oci.Text("own", "1"), oci.Text("own", "2")
	shared := must[v1.Layer](t)(oci.Layer(base))
	one := must[v1.Image](t)(oci.Image(oci.Host(), v1.Config{}, shared, must[v1.Layer](t)(oci.Layer(own1))))
	two := must[v1.Image](t)(oci.Image(oci.Host(), v1.Config{}, shared, must[v1.Layer](t)(oci.Layer(own2))))
	for backend, host := range backends(t) {
		proxy, at := front(t, host)
		push(t, host, "one:v1", one)
		push(t, host, "two:v1", two)
		blob := must[v1.Hash](t)(shared.Digest()).String()
		proxy.Set(Fault{Path: blob, Do: Slow(50_000, 10*time.Millisecond)})
		s := store(t, t.TempDir(), registry.Options{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				ref := at + []string{"/one:v1", "/two:v1"}[i%2]
				if _, err := s.Pull(t.Context(), images.PullRequest{Ref: ref}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		n := 0
		for _, r := range proxy.Requests() {
			if strings.HasPrefix(r, "GET ") && strings.Contains(r, blob) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: the shared blob was fetched %d times", backend, n)
		}
		proxy.Set()
		must[images.Image](t)(s.Pull(t.Context(), images.PullRequest{Ref: at + "/one:v1"}))
		if got := proxy.Requests(); len(got) != 1 || got[0] != "HEAD /v2/one/manifests/v1" {
			t.Errorf("%s: a pull of what is present asked %q", backend, got)
		}
	}
}

// What is wrong at a mirror comes from the registry, and it is told who gave what.
func TestCorruptMirror(t *testing.T) {
	sizes := []int{100, 200_000}
	img := image(t, sizes...)
	all := backends(t)
	push(t, all["in-process"], "app:v1", img)
	push(t, all["docker-registry"], "app:v1", img)
	mirror, at := front(t, all["docker-registry"])
	layers := must[[]v1.Layer](t)(img.Layers())
	bad := must[v1.Hash](t)(layers[1].Digest()).String()
	good := must[v1.Hash](t)(layers[0].Digest()).String()
	mirror.Set(Fault{Path: bad, Do: Corrupt(100_000)})
	origin := all["in-process"]
	var logged strings.Builder
	s := store(t, t.TempDir(), registry.Options{
		Mirrors: map[string][]hosts.Mirror{origin: {{Scheme: "http", Host: at}}},
		Logger:  slog.New(slog.NewTextHandler(&logged, nil)),
	})
	got := must[images.Image](t)(s.Pull(t.Context(), images.PullRequest{Ref: origin + "/app:v1"}))
	intact(t, s, got, sizes...)
	served := fmt.Sprint(got.Served[origin], got.Served[at])
	if !strings.Contains(fmt.Sprint(got.Served[origin]), bad) || !strings.Contains(fmt.Sprint(got.Served[at]), good) {
		t.Errorf("served: %s", served)
	}
	if !strings.Contains(logged.String(), "wrong content") || !strings.Contains(logged.String(), at) {
		t.Errorf("logged %s", &logged)
	}
}
