package images

import (
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestParseName(t *testing.T) {
	const sum = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	long := "sha512:" + strings.Repeat("0f", 64)
	tests := []struct{ in, full, repo, digest string }{
		{"docker.io/busybox", "docker.io/library/busybox:latest", "docker.io/library/busybox", ""},
		{"index.docker.io/busybox", "docker.io/library/busybox:latest", "docker.io/library/busybox", ""},
		{"docker.io/library/busybox:latest", "docker.io/library/busybox:latest", "docker.io/library/busybox", ""},
		{"docker.io/me/app:v1", "docker.io/me/app:v1", "docker.io/me/app", ""},
		{"localhost/app", "localhost/app:latest", "localhost/app", ""},
		{"registry.k8s.io/pause", "registry.k8s.io/pause:latest", "registry.k8s.io/pause", ""},
		{"registry.k8s.io/pause-amd64:3.1", "registry.k8s.io/pause-amd64:3.1", "registry.k8s.io/pause-amd64", ""},
		{"registry:5000/app", "registry:5000/app:latest", "registry:5000/app", ""},
		{"REGISTRY.example/app", "REGISTRY.example/app:latest", "REGISTRY.example/app", ""},
		{"a__b/c--d/e.f:A_b.C-d", "docker.io/a__b/c--d/e.f:A_b.C-d", "docker.io/a__b/c--d/e.f", ""},
		{"busybox@" + sum, "docker.io/library/busybox@" + sum, "docker.io/library/busybox", sum},
		{"host:1/a:latest@" + sum, "host:1/a@" + sum, "host:1/a", sum},
		{"a@" + long, "docker.io/library/a@" + long, "docker.io/library/a", long},
		{"a:" + strings.Repeat("t", 128), "docker.io/library/a:" + strings.Repeat("t", 128), "docker.io/library/a", ""},
		{"busybox", "docker.io/library/busybox:latest", "docker.io/library/busybox", ""},
		{"busybox:1.36", "docker.io/library/busybox:1.36", "docker.io/library/busybox", ""},
		{"me/app", "docker.io/me/app:latest", "docker.io/me/app", ""},
		{"localhost:5000/app", "localhost:5000/app:latest", "localhost:5000/app", ""},
		{"127.0.0.1:5000/a/b:c", "127.0.0.1:5000/a/b:c", "127.0.0.1:5000/a/b", ""},
		{"[::1]:5000/a", "[::1]:5000/a:latest", "[::1]:5000/a", ""},
		{"ghcr.io/a/b@" + sum, "ghcr.io/a/b@" + sum, "ghcr.io/a/b", sum},
		{"ghcr.io/a/b:v1@" + sum, "ghcr.io/a/b@" + sum, "ghcr.io/a/b", sum},
	}
	for _, tt := range tests {
		n, err := parseName(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if n.full != tt.full || n.repo != tt.repo || n.digest.String() != tt.digest {
			t.Errorf("%s: got %+v", tt.in, n)
		}
	}
	for _, bad := range []string{
		"", " ", "a:", "a@", ":v1", "@" + sum, "a:-x", "a:.x", "a:b/c", "a:" + strings.Repeat("t", 129),
		"lower/CASE", "Upper", "a b", " a", "a ", "a\n", "a\x00", "ä", "a//b", "/a", "a/", "../a", "a/../b", "-a", "a-", "a___b",
		"a@sha256:12", "a@" + sum + "0", "a@md5:d41d8cd98f00b204e9800998ecf8427e", "a@sha256:" + strings.ToUpper(sum[7:]), "a@" + sum + "@" + sum,
		"https://a/b", "docker://a", "a:b:c", "host:port/a", "host:/a", "[::1/a", "user@host/a",
		strings.Repeat("a", 64), sum, "a/" + strings.Repeat("b", 255),
	} {
		if _, err := parseName(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v, want ErrInvalidArgument", bad, err)
		}
	}
}

// One image has one id, whatever it is called and wherever it came from, and is
// found by all of its names until one of them is removed.
func TestNamesOfOneImage(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	l := gzipLayer(t, file{name: "app", content: "x"})
	var d ocispec.Descriptor
	for _, at := range []string{"one:a", "one:b", "two/deep:a", "one:latest"} {
		repo, tag, _ := strings.Cut(at, ":")
		d = r.image(repo, tag, hostPlatform, ocispec.ImageConfig{User: "7"}, l)
	}
	other := strings.Replace(r.host, "127.0.0.1", "localhost", 1) // another registry by name
	pull := []string{
		r.host + "/one:a", r.host + "/one:b", r.host + "/two/deep:a", r.host + "/one", other + "/one:a",
		r.host + "/one@" + d.Digest.String(), r.host + "/one:gone@" + d.Digest.String(),
	}
	all := func() (id string) {
		for _, ref := range pull {
			img := s.mustPull(ref, "")
			if id != "" && img.ID != id {
				t.Errorf("%s has id %s, not %s", ref, img.ID, id)
			}
			id = img.ID
		}
		return id
	}
	id := all()
	found := append([]string{id, id[7:], id[:20], id[7:12], other + "/one@" + d.Digest.String()}, pull...)
	for _, name := range found {
		img, err := s.Find(t.Context(), name, "")
		if err != nil || img.ID != id || len(img.RepoTags) != 5 || len(img.RepoDigests) != 3 || img.Size == 0 {
			t.Errorf("%s: %+v, %v", name, img, err)
		}
	}
	for _, name := range []string{id[7:10], "one", other + "/one:b", "sha256:" + strings.Repeat("0", 64)} {
		if _, err := s.Find(t.Context(), name, ""); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range found {
		if got := all(); got != id {
			t.Fatalf("the id became %s", got)
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := s.Remove(t.Context(), name); err != nil {
					t.Errorf("Remove(%s): %v", name, err)
				}
			})
		}
		wg.Wait()
		if list, err := s.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("after Remove(%s): %d images, %v", name, len(list), err)
		}
		if b, l := s.blobs(), s.layerDirs(); b != 0 || l != 0 {
			t.Errorf("after Remove(%s): %d blobs and %d layers", name, b, l)
		}
	}
}
