package registry

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
)

// Pushes to docker-registry, open, with passwords and with tokens: another store pulls the same
// image from there, a repetition sends nothing, and wrong credentials are refused.
func TestPush(t *testing.T) {
	tokens := must[*TokenServer](t)(NewTokenServer())
	tokens.Users = map[string]string{"u": "s3cr3t"}
	tokenServer := httptest.NewServer(tokens)
	t.Cleanup(tokenServer.Close)
	source := distribution(t, DistributionOptions{})
	sizes := []int{100, 1 << 20, 300_000}
	from := push(t, source.Host, "source/app:v1", image(t, sizes...))
	for name, dest := range map[string]*Distribution{
		"open":      distribution(t, DistributionOptions{}),
		"passwords": distribution(t, DistributionOptions{Htpasswd: htpasswd(t)}),
		"tokens":    distribution(t, DistributionOptions{Realm: tokenServer.URL + "/token", TokenCert: write(t, "cert.pem", string(tokens.CertPEM()))}),
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, t.TempDir(), registry.Options{Chunk: 256 << 10}) // so that one blob comes in parts
			img := must[images.Image](t)(s.Pull(t.Context(), images.PullRequest{Ref: from}))
			right, wrong := registry.Credentials{Username: "u", Password: "s3cr3t"}, registry.Credentials{Username: "u", Password: "s3cr3t2"}
			req := images.PushRequest{Source: from, Dest: dest.Host + "/one/app:v2", Auth: right}
			if name != "open" {
				for _, auth := range []registry.Credentials{wrong, {}} {
					bad := req
					bad.Auth = auth
					if _, err := s.Push(t.Context(), bad); !errdefs.IsUnauthorized(err) || strings.Contains(err.Error(), "s3cr3t") {
						t.Errorf("wrong credentials: %v", err)
					}
				}
			}
			p := must[images.Pushed](t)(s.Push(t.Context(), req))
			if p.Sent != len(sizes)+1 || p.Digest != img.Manifest.Digest {
				t.Errorf("pushed %+v, want %d blobs of %s", p, len(sizes)+1, img.Manifest.Digest)
			}
			again := must[images.Pushed](t)(s.Push(t.Context(), req))
			if again.Sent != 0 || again.Mounted != 0 || again.Present != len(sizes)+1 {
				t.Errorf("pushed again: %+v", again)
			}
			other := store(t, t.TempDir(), registry.Options{})
			got := must[images.Image](t)(other.Pull(t.Context(), images.PullRequest{Ref: req.Dest, Auth: right}))
			if got.ID != img.ID || got.Manifest.Digest != img.Manifest.Digest {
				t.Errorf("pulled %s, want %s", got.ID, img.ID)
			}
			intact(t, other, got, sizes...)
			// What came from one repository is mounted in another, though it was not kept.
			req = images.PushRequest{Source: req.Dest, Dest: dest.Host + "/two/app:v3", Auth: right}
			p = must[images.Pushed](t)(other.Push(t.Context(), req))
			if p.Mounted != len(sizes)+1 || p.Sent != 0 || p.Digest != img.Manifest.Digest {
				t.Errorf("pushed to another repository: %+v", p)
			}
			third := store(t, t.TempDir(), registry.Options{})
			got = must[images.Image](t)(third.Pull(t.Context(), images.PullRequest{Ref: req.Dest, Auth: right}))
			intact(t, third, got, sizes...)
		})
	}
}
