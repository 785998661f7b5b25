package reference

import (
	"crypto/sha512"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
)

func TestParseName(t *testing.T) {
	const sum = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	long := fmt.Sprintf("sha512:%x", sha512.Sum512([]byte("x")))
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
		n, err := Parse(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if n.Full != tt.full || n.Repo != tt.repo || n.Digest.String() != tt.digest {
			t.Errorf("%s: got %+v", tt.in, n)
		}
	}
	for _, bad := range []string{
		"", " ", "a:", "a@", ":v1", "@" + sum, "a:-x", "a:.x", "a:b/c", "a:" + strings.Repeat("t", 129),
		"lower/CASE", "Upper", "a b", " a", "a ", "a\n", "a\x00", "ä", "a//b", "/a", "a/", "../a", "a/../b", "-a", "a-", "a___b",
		"a@sha256:12", "a@" + sum + "0", "a@md5:d41d8cd98f00b204e9800998ecf8427e", "a@sha256:" + strings.ToUpper(sum[7:]), "a@" + sum + "@" + sum,
		"https://a/b", "docker://a", "a:b:c", "host:port/a", "localhost:99999/x", "localhost:65536/x", "[::1]:70000/x", "host:/a", "[::1/a", "user@host/a",
		strings.Repeat("a", 64), sum, "a/" + strings.Repeat("b", 255),
	} {
		if _, err := Parse(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v, want ErrInvalidArgument", bad, err)
		}
	}
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{
		"", "busybox", "r.io:5000/a/b:v1", "r.io/a@sha256:" + digest.FromString("x").Encoded(), "a:v1@sha256:" + digest.FromString("x").Encoded(),
		"[::1]:5000/a", "A", "a:-x", "a//b", "localhost/a", "a@sha512:12", "sha256:" + digest.FromString("x").Encoded(), "a:\x00", "r.io/../a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		n, err := Parse(ref)
		if err != nil {
			return
		}
		again, err := Parse(n.Full)
		if err != nil || again != n {
			t.Errorf("%q is %+v, which is %+v, %v", ref, n, again, err)
		}
		if n.Digest != "" && n.Digest.Validate() != nil {
			t.Errorf("%q has digest %q", ref, n.Digest)
		}
	})
}
