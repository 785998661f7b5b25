package images

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func parsePlatforms(t *testing.T, names ...string) []ocispec.Platform {
	t.Helper()
	var out []ocispec.Platform
	for _, n := range names {
		parts := strings.Split(n, "/")
		p := ocispec.Platform{OS: parts[0], Architecture: parts[1]}
		if len(parts) > 2 {
			p.Variant = parts[2]
		}
		out = append(out, p)
	}
	return out
}

// entriesOf makes index entries named "os/arch[/variant]"; a "+" in front makes
// an attestation, "-" an entry without a platform. Its place is its digest.
func entriesOf(t *testing.T, names ...string) []ocispec.Descriptor {
	t.Helper()
	var out []ocispec.Descriptor
	for i, n := range names {
		d := ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest,
			Digest:    digest.FromString(string(rune('a' + i))),
			Size:      1,
		}
		switch {
		case n == "-":
		case strings.HasPrefix(n, "+"):
			d.Annotations = map[string]string{referenceTypeAnnotation: "attestation-manifest"}
			d.Platform = &parsePlatforms(t, n[1:])[0]
		default:
			d.Platform = &parsePlatforms(t, n)[0]
		}
		out = append(out, d)
	}
	return out
}

var (
	wasmFirst = []string{"wasip1/wasm", "wasi/wasm", "wasi/wasm32", "linux/wasm", "linux/amd64"}
	hostOnly  = []string{"linux/amd64"}
)

func TestSelect(t *testing.T) {
	full := []string{"linux/amd64", "linux/arm64", "wasip1/wasm", "unknown/unknown", "unknown/unknown"}
	tests := []struct {
		name    string
		entries []string
		want    []string
		index   int // -1: no match
	}{
		{"host of a full index", full, hostOnly, 0},
		{"arm64 of a full index", full, []string{"linux/arm64"}, 1},
		{"wasm of a full index", full, wasmFirst, 2},
		{"the list decides, not the index", []string{"linux/wasm", "wasi/wasm", "wasip1/wasm"}, wasmFirst, 2},
		{"second platform of the list", []string{"linux/amd64", "linux/wasm", "wasi/wasm"}, wasmFirst, 2},
		{"third platform of the list", []string{"linux/amd64", "wasi/wasm32"}, wasmFirst, 1},
		{"fourth platform of the list", []string{"linux/amd64", "linux/wasm"}, wasmFirst, 1},
		{"wasm handler falls back to the host", []string{"linux/arm64", "linux/amd64"}, wasmFirst, 1},
		{"wasm handler that must not fall back", []string{"linux/arm64", "linux/amd64"}, wasmFirst[:4], -1},
		{"oci handler never takes wasm", []string{"wasip1/wasm", "wasi/wasm", "linux/wasm"}, hostOnly, -1},
		{"a preview 2 entry is not preview 1", []string{"wasip2/wasm"}, wasmFirst, -1},
		{"attestation with the host's platform", []string{"+linux/amd64", "linux/amd64"}, hostOnly, 1},
		{"only attestations", []string{"+unknown/unknown", "+linux/amd64"}, hostOnly, -1},
		{"only unknown", []string{"unknown/unknown"}, hostOnly, -1},
		{"entry without a platform", []string{"-", "linux/amd64"}, hostOnly, 1},
		{"no entries", nil, hostOnly, -1},
		{"nothing wanted", full, nil, -1},
		{"first of equals", []string{"linux/amd64", "linux/amd64"}, hostOnly, 0},
		{"arm v7 among all", []string{"linux/arm/v5", "linux/arm/v6", "linux/arm/v7", "linux/arm/v8"}, []string{"linux/arm/v7"}, 2},
		{"arm v7 without v7", []string{"linux/arm/v5", "linux/arm/v6", "linux/arm64"}, []string{"linux/arm/v7"}, 1},
		{"arm v6 does not take v7", []string{"linux/arm/v7", "linux/arm/v5"}, []string{"linux/arm/v6"}, 1},
		{"arm v5 does not take v6", []string{"linux/arm/v7", "linux/arm/v6"}, []string{"linux/arm/v5"}, -1},
		{"arm without a variant is v7", []string{"linux/arm/v6", "linux/arm"}, []string{"linux/arm/v7"}, 1},
		{"arm v8 takes v7", []string{"linux/arm/v6", "linux/arm/v7"}, []string{"linux/arm/v8"}, 1},
		{"arm64 with and without v8", []string{"linux/arm64/v8"}, []string{"linux/arm64"}, 0},
		{"arm64 takes arm v7", []string{"linux/arm/v6", "linux/arm/v7"}, []string{"linux/arm64"}, 1},
		{"arm64 before arm", []string{"linux/arm/v7", "linux/arm64"}, []string{"linux/arm64"}, 1},
		{"amd64 takes the plain level only", []string{"linux/amd64/v3", "linux/amd64/v2", "linux/amd64"}, hostOnly, 2},
		{"amd64 does not take v2", []string{"linux/amd64/v2"}, hostOnly, -1},
		{"amd64/v3 takes the highest below", []string{"linux/amd64", "linux/amd64/v2", "linux/amd64/v4"}, []string{"linux/amd64/v3"}, 1},
		{"amd64/v3 takes v3", []string{"linux/amd64", "linux/amd64/v2", "linux/amd64/v3"}, []string{"linux/amd64/v3"}, 2},
		{"amd64/v2 takes plain", []string{"linux/amd64/v3", "linux/amd64"}, []string{"linux/amd64/v2"}, 1},
		{"amd64 v1 is plain", []string{"linux/amd64/v1"}, hostOnly, 0},
		{"amd64 takes 386 last", []string{"linux/386", "linux/amd64"}, hostOnly, 1},
		{"amd64 takes 386", []string{"linux/386"}, hostOnly, 0},
		{"x86_64 is amd64", []string{"linux/x86_64"}, hostOnly, 0},
		{"riscv64", []string{"linux/amd64", "linux/riscv64"}, []string{"linux/riscv64"}, 1},
		{"another system", []string{"windows/amd64", "freebsd/amd64"}, hostOnly, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			entries := entriesOf(t, tt.entries...)
			got, err := Select(entries, parsePlatforms(t, tt.want...))
			if tt.index < 0 {
				var none *NoMatchError
				if !errors.As(err, &none) || !errdefs.IsFailedPrecondition(err) {
					t.Fatalf("Select: %v, %v; want a NoMatchError", got.Platform, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Digest != entries[tt.index].Digest {
				t.Errorf("got %s, want entry %d", platforms.Format(*got.Platform), tt.index)
			}
		})
	}
}

func TestNoMatchErrorText(t *testing.T) {
	tests := []struct {
		err  NoMatchError
		want string
	}{
		{NoMatchError{}, "the image holds nothing that can run"},
		{
			NoMatchError{Want: parsePlatforms(t, "linux/amd64"), Have: parsePlatforms(t, "wasip1/wasm", "linux/arm64/v8", "wasip1/wasm")},
			"the image is for wasip1/wasm, linux/arm64/v8, not for linux/amd64",
		},
		{
			NoMatchError{Want: parsePlatforms(t, "linux/amd64"), Have: parsePlatforms(t, "wasip1/wasm"), Takers: []string{"wasm"}},
			`the image is for wasip1/wasm, not for linux/amd64; handler "wasm" takes it`,
		},
		{
			NoMatchError{Want: parsePlatforms(t, "linux/amd64"), Have: parsePlatforms(t, "wasip1/wasm"), Takers: []string{"a", "b"}},
			`the image is for wasip1/wasm, not for linux/amd64; handlers "a", "b" take it`,
		},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestParseName(t *testing.T) {
	const sum = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	tests := []struct{ in, full, repo, digest string }{
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
	for _, bad := range []string{"", "a:-x", "lower/CASE", "a b", "a@sha256:12", "https://a/b", "a:b:c", strings.Repeat("a", 64)} {
		if _, err := parseName(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v, want ErrInvalidArgument", bad, err)
		}
	}
}
