package hostile

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// manifestOf reads a manifest of the registry of all tests.
func (n *target) manifestOf(ref string) (m ocispec.Manifest, desc ocispec.Descriptor) {
	n.t.Helper()
	path, tag, _ := strings.Cut(strings.TrimPrefix(ref, world.registry.Host+"/"), ":")
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://"+world.registry.Host+"/v2/"+path+"/manifests/"+tag, nil)
	n.check(err)
	resp, err := http.DefaultClient.Do(req)
	n.check(err)
	defer resp.Body.Close()
	n.check(json.NewDecoder(resp.Body).Decode(&m))
	d := digest.Digest(resp.Header.Get("Docker-Content-Digest"))
	n.check(d.Validate())
	return m, ocispec.Descriptor{MediaType: resp.Header.Get("Content-Type"), Digest: d, Size: resp.ContentLength}
}

// behindPassword is a registry that gives what the registry of all tests has to whoever knows the
// password.
func behindPassword(t *testing.T) (host string) {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: world.registry.Host})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password == "s3cr3t" {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// Whoever knows the digests of a private image that is present, and answers for a registry of his
// own, does not get to run it.
func TestPrivateImageIsNotGivenAway(t *testing.T) {
	n := start(t, "[images]\npull_verification = \"when-private\"")
	ref := strings.Replace(world.busybox, world.registry.Host, behindPassword(t), 1)
	m, desc := n.manifestOf(world.busybox)
	answer, err := n.PullImage(n.within(node.Patience), &runtime.PullImageRequest{
		Image: &runtime.ImageSpec{Image: ref}, Auth: &runtime.AuthConfig{Username: "u", Password: "s3cr3t"}, SandboxConfig: n.podConfig(),
	})
	n.check(err)

	l := newLair(t)
	there := func(w http.ResponseWriter, r *http.Request) { // as HEAD would have it
		if r.Method != http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
		}
	}
	for _, d := range append([]ocispec.Descriptor{m.Config, desc}, m.Layers...) {
		l.does[d.Digest.String()] = there
	}
	l.does["lie"] = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", desc.MediaType)
		w.Header().Set("Docker-Content-Digest", desc.Digest.String())
		w.Header().Set("Content-Length", "100")
	}
	l.doc("index", ocispec.MediaTypeImageIndex, ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{desc}})
	m.Annotations = map[string]string{"a": "copy"}
	l.doc("copy", ocispec.MediaTypeImageManifest, m)
	m.Layers = []ocispec.Descriptor{}
	l.doc("empty", ocispec.MediaTypeImageManifest, m)

	thief := n.run("runc", func(c *runtime.PodSandboxConfig) { c.Metadata.Namespace = "thief" })
	for _, tag := range []string{"lie", "index", "copy", "empty"} {
		_, err := n.PullImage(n.within(node.Patience), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: l.host + "/lair:" + tag}, SandboxConfig: thief.config})
		if err == nil {
			t.Errorf("%s: pulled", tag)
		}
	}
	for _, name := range []string{answer.GetImageRef(), ref} {
		_, err := thief.tryCreate(of(name, "/bin/true"))
		n.refused(err, codes.PermissionDenied, "thief")
	}
	owner := n.run("runc")
	if status := owner.start(of(ref, "/bin/true")).wait(); status.GetExitCode() != 0 {
		t.Errorf("the owner's container: %v", status)
	}
}

// A copy of a public image that calls itself a checkpoint leaves the image as it is, whichever
// comes first.
func TestAnnotationOfAnotherManifest(t *testing.T) {
	for _, first := range []string{"copy", "original"} {
		t.Run(first+" first", func(t *testing.T) {
			n := start(t)
			image, err := oci.Busybox(oci.Host(), v1.Config{})
			n.check(err)
			copied := n.push("copied:1", oci.Annotated(image, map[string]string{"io.kubernetes.cri-o.annotations.checkpoint.name": "gotcha"}), nil)
			refs := []string{copied, world.busybox}
			if first == "original" {
				refs = []string{world.busybox, copied}
			}
			for _, ref := range refs {
				n.pull(ref)
			}
			p := n.run("runc")
			if status := p.start(of(world.busybox, "/bin/true")).wait(); status.GetExitCode() != 0 {
				t.Errorf("%v", status)
			}
			if _, err := p.tryCreate(of(copied, "/bin/true")); err == nil {
				t.Error("an image without a checkpoint was restored")
			}
		})
	}
}
