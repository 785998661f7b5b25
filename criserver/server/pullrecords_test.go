package server

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/platforms"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// livePod stands for the sandbox that a pull names.
type livePod struct{ handler string }

func (p *livePod) FindLive(*runtime.PodSandboxConfig) (state.Sandbox, bool) {
	return state.Sandbox{HandlerName: p.handler}, true
}

// books are those of a kubelet about the images that it has pulled: by the id that the pull
// answered, the repositories that it pulled them from. All its pods have the same secret here.
type books struct {
	*testing.T
	api       *imageAPI
	ref       string
	byHandler bool // the gate RuntimeClassInImageCriApi
	verifies  bool // the policy AlwaysVerify, else NeverVerifyPreloadedImages
	pulled    map[string]bool
}

// runs does what the kubelet does for a container with imagePullPolicy IfNotPresent, up to the
// image of CreateContainer. It reports whether that took a pull.
func (b *books) runs(handler string) (pulls bool) {
	b.Helper()
	spec := &runtime.ImageSpec{Image: b.ref}
	if b.byHandler && handler != "runc" { // the default one: such pods have no class
		spec.RuntimeHandler = handler
	}
	status, err := b.api.ImageStatus(b.Context(), &runtime.ImageStatusRequest{Image: spec})
	if err != nil {
		b.Fatal(err)
	}
	id := status.GetImage().GetId()
	if id == "" || !b.pulled[id] && b.verifies {
		pulls = true
		b.api.sandboxes = &livePod{handler}
		answer, err := b.api.PullImage(b.Context(), &runtime.PullImageRequest{
			Image: spec, SandboxConfig: &runtime.PodSandboxConfig{Metadata: &runtime.PodSandboxMetadata{Name: "p"}},
			Auth: &runtime.AuthConfig{Username: "u", Password: "s3cr3t"},
		})
		if err != nil {
			b.Errorf("pull for %s: %v", handler, err)
			return true
		}
		id = answer.GetImageRef()
		b.pulled[id] = true
	}
	img, err := b.api.images.ForContainer(b.Context(), id, b.ref, handler)
	if err != nil {
		b.Errorf("container under %s: %v", handler, err)
	} else if want := map[string]string{"runc": "linux", "wasm": "wasip1"}[handler]; img.Platform.OS != want {
		b.Errorf("container under %s: image of %s", handler, platforms.FormatAll(img.Platform))
	}
	return pulls
}

// One secret, one reference, pods of two handlers and imagePullPolicy IfNotPresent: the first pod's
// pull is the only one, also when the registry goes away after it, if the image is private.
func TestOnePullForPodsOfTwoHandlers(t *testing.T) {
	ref, private, away := behindPassword(t)
	flags := []bool{false, true}
	for _, first := range []string{"wasm", "runc"} {
		second := map[string]string{"wasm": "runc", "runc": "wasm"}[first]
		for _, isPrivate := range flags {
			for _, byHandler := range flags {
				for _, verifies := range flags {
					name := strings.Join([]string{first, map[bool]string{true: "private", false: "open"}[isPrivate],
						map[bool]string{true: "by handler", false: "by reference"}[byHandler], map[bool]string{true: "verified", false: "preloaded"}[verifies]}, " ")
					t.Run(name, func(t *testing.T) {
						b := &books{T: t, api: imageServer(t), ref: ref, byHandler: byHandler, verifies: verifies, pulled: map[string]bool{}}
						private.Store(isPrivate)
						away.Store(false)
						if !b.runs(first) {
							t.Error("no pull for the first pod")
						}
						away.Store(isPrivate)
						// By handler, the second is told where the first pull had no need to bring
						// its variant.
						if b.runs(second) && (isPrivate || !byHandler) {
							t.Errorf("a pull for %s", second)
						}
						away.Store(true)
						for _, handler := range []string{first, second} {
							if b.runs(handler) {
								t.Errorf("a pull for %s without the registry", handler)
							}
						}
					})
				}
			}
		}
	}
}

func imageServer(t *testing.T) *imageAPI {
	t.Helper()
	table, err := runtimeclass.NewTable([]runtimeclass.Handler{
		{Name: "runc", Type: runtimeclass.OCI, Binary: "runc", Default: true}, {Name: "wasm", Type: runtimeclass.WASM},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := images.Options{Root: filepath.Join(t.TempDir(), "images")}
	for _, h := range table.All() {
		o.Handlers = append(o.Handlers, images.HandlerPlatforms{Name: h.Name, Platforms: h.Platforms, Default: h.Default})
	}
	o.Registry.Retries = -1
	s, err := images.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &imageAPI{images: s, handlers: table}
}

// behindPassword pushes an image for both handlers to a registry that may ask for a password, and
// may be away.
func behindPassword(t *testing.T) (ref string, private, away *atomic.Bool) {
	t.Helper()
	private, away = new(atomic.Bool), new(atomic.Bool)
	registry, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { registry.Close() })
	variant := func(platform v1.Platform, file oci.File) oci.Variant {
		image, err := oci.Packed(platform, file)
		if err != nil {
			t.Fatal(err)
		}
		return oci.Variant{Image: image, Platform: platform}
	}
	index, err := oci.Index(variant(oci.Host(), oci.Program("app", []byte("#!"))), variant(oci.Wasip1, oci.Program("app.wasm", []byte("\x00asm\x01\x00\x00\x00"))))
	if err != nil {
		t.Fatal(err)
	}
	if ref, err = registry.PushIndex(t.Context(), "app:v1", index); err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry.Host})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		switch {
		case away.Load():
			w.WriteHeader(http.StatusBadGateway)
		case private.Load() && password != "s3cr3t":
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return strings.Replace(ref, registry.Host, strings.TrimPrefix(server.URL, "http://"), 1), private, away
}
