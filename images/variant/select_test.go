package variant

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
)

func parsePlatforms(t *testing.T, names ...string) []ocispec.Platform {
	t.Helper()
	var out []ocispec.Platform
	for _, n := range names {
		parts := strings.Split(n, "/")
		p := ocispec.Platform{OS: parts[0], Architecture: parts[1]}
		if os, options, ok := strings.Cut(strings.TrimSuffix(parts[0], ")"), "("); ok {
			p.OS = os
			for o := range strings.SplitSeq(options, ";") {
				if f, ok := strings.CutPrefix(o, "+"); ok {
					p.OSFeatures = append(p.OSFeatures, f)
				} else {
					p.OSVersion = o
				}
			}
		}
		if len(parts) > 2 {
			p.Variant = parts[2]
		}
		out = append(out, p)
	}
	return out
}

// entriesOf makes index entries named "os/arch[/variant]", the system perhaps followed by
// "(version;+feature)"; a "+" in front makes an attestation, "-" an entry without a platform, and
// "type@" one with that artifact type. Its place is its digest.
func entriesOf(t *testing.T, names ...string) []ocispec.Descriptor {
	t.Helper()
	var out []ocispec.Descriptor
	for i, n := range names {
		d := ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest,
			Digest:    digest.FromString(string(rune('a' + i))),
			Size:      1,
		}
		if artifact, platform, ok := strings.Cut(n, "@"); ok {
			d.ArtifactType, n = artifact, platform
		}
		switch {
		case n == "-":
		case strings.HasPrefix(n, "+"):
			d.Annotations = map[string]string{manifest.ReferenceTypeAnnotation: "attestation-manifest"}
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
		{"riscv64 is no other", []string{"linux/riscv32", "linux/arm64"}, []string{"linux/riscv64"}, -1},
		{"ppc64le", []string{"linux/ppc64", "linux/ppc64le"}, []string{"linux/ppc64le"}, 1},
		{"mips64le", []string{"linux/mips64", "linux/mips64le", "linux/mipsle"}, []string{"linux/mips64le"}, 1},
		{"s390x", []string{"linux/s390x"}, []string{"linux/s390x"}, 0},
		{"arm v5 takes v5", []string{"linux/arm/v7", "linux/arm/v5"}, []string{"linux/arm/v5"}, 1},
		{"arm v7 takes v5 last", []string{"linux/arm/v5", "linux/arm/v8"}, []string{"linux/arm/v7"}, 0},
		{"arm v7 does not take v8", []string{"linux/arm/v8"}, []string{"linux/arm/v7"}, -1},
		{"arm v8 does not take arm64", []string{"linux/arm64"}, []string{"linux/arm/v8"}, -1},
		{"arm spelt armhf is v7", []string{"linux/arm/v6", "linux/armhf"}, []string{"linux/arm/v7"}, 1},
		{"arm spelt armel is v6", []string{"linux/arm/v7", "linux/armel"}, []string{"linux/arm/v6"}, 1},
		{"arm64 spelt aarch64", []string{"linux/arm/v7", "linux/aarch64"}, []string{"linux/arm64"}, 1},
		{"arm64/v9 takes v8", []string{"linux/arm64"}, []string{"linux/arm64/v9"}, 0},
		{"arm64 does not take v9", []string{"linux/arm64/v9"}, []string{"linux/arm64"}, -1},
		{"arm64 does not take v8.2", []string{"linux/arm64/v8.2", "linux/arm64"}, []string{"linux/arm64"}, 1},
		{"amd64/v4 takes v4 among all", []string{"linux/amd64", "linux/amd64/v2", "linux/amd64/v3", "linux/amd64/v4"}, []string{"linux/amd64/v4"}, 3},
		{"amd64/v4 takes plain before 386", []string{"linux/386", "linux/amd64"}, []string{"linux/amd64/v4"}, 1},
		{"amd64/v2 does not take v3", []string{"linux/amd64/v3"}, []string{"linux/amd64/v2"}, -1},
		{"386 does not take amd64", []string{"linux/amd64"}, []string{"linux/386"}, -1},
		{"an unknown variant is no other", []string{"linux/amd64/x"}, hostOnly, -1},
		{"os.version is no bar", []string{"linux(6.1)/amd64"}, hostOnly, 0},
		{"without os.version before with", []string{"linux(6.1)/amd64", "linux/amd64"}, hostOnly, 1},
		{"the os.version that is wanted", []string{"linux/amd64", "linux(5.15)/amd64", "linux(6.1)/amd64"}, []string{"linux(6.1)/amd64"}, 2},
		{"the level goes before os.version", []string{"linux/amd64", "linux(6.1)/amd64/v2"}, []string{"linux/amd64/v2"}, 1},
		{"os.features that the node lacks", []string{"linux(+sgx)/amd64"}, hostOnly, -1},
		{"the entry that needs no os.features", []string{"linux(+sgx)/amd64", "linux/amd64"}, hostOnly, 1},
		{"os.features that the node has", []string{"linux/amd64", "linux(+sgx)/amd64"}, []string{"linux(+sgx)/amd64"}, 1},
		{"the most os.features of those the node has", []string{"linux(+a)/amd64", "linux(+a;+b)/amd64", "linux(+a;+b;+c)/amd64"}, []string{"linux(+a;+b)/amd64"}, 1},
		{"os.features of a wasm entry", []string{"wasip1(+threads)/wasm", "wasi/wasm"}, wasmFirst, 1},
		{"unknown system", []string{"unknown/amd64", "linux/amd64"}, hostOnly, 1},
		{"unknown architecture", []string{"linux/unknown", "linux/amd64"}, hostOnly, 1},
		{"a list of materials for the host", []string{"application/spdx+json@linux/amd64", "linux/amd64"}, hostOnly, 1},
		{"only a signature", []string{"application/vnd.dev.cosign.artifact.sig.v1+json@linux/amd64"}, hostOnly, -1},
		{"a wasm artifact says its type", []string{"linux/amd64", manifest.MediaTypeWasmConfig + "@wasip1/wasm"}, wasmFirst, 1},
		{"an artifact of type wasm", []string{"linux/amd64", manifest.MediaTypeWasm + "@wasi/wasm"}, wasmFirst, 1},
		{"an image says its type", []string{ocispec.MediaTypeImageConfig + "@linux/amd64"}, hostOnly, 0},
		{"wasip1 before wasip2", []string{"wasip2/wasm", "wasip1/wasm"}, wasmFirst, 1},
		{"wasip2 beside the host", []string{"wasip2/wasm", "linux/amd64"}, wasmFirst, 1},
		{"wasip2 that is configured", []string{"linux/amd64", "wasip2/wasm"}, []string{"wasip2/wasm", "wasip1/wasm", "linux/amd64"}, 1},
		{"js/wasm is no WASI", []string{"js/wasm"}, wasmFirst, -1},
		{"wasm handler takes a lesser level of the host", []string{"linux/amd64"}, []string{"wasip1/wasm", "linux/amd64/v3"}, 0},
		{"wasm handler takes the host's best level", []string{"linux/amd64", "linux/amd64/v2"}, []string{"wasip1/wasm", "linux/amd64/v3"}, 1},
		{"case of the names", []string{"Linux/AMD64"}, hostOnly, 0},
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
			NoMatchError{Want: parsePlatforms(t, "linux/amd64"), Have: parsePlatforms(t, "linux(+sgx)/amd64", "windows(10.0.17763)/amd64")},
			`the image is for linux(+sgx)/amd64, windows(10.0.17763)/amd64, not for linux/amd64`,
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

// Of modules and components the handler's list chooses.
func TestComponentsBesideModules(t *testing.T) {
	both := entriesOf(t, "wasip2/wasm", "wasip1/wasm")
	for want, place := range map[string]int{"wasip1/wasm": 1, "wasip2/wasm": 0} {
		if d, err := Select(both, parsePlatforms(t, want)); err != nil || d.Digest != both[place].Digest {
			t.Errorf("%s: %+v, %v", want, d, err)
		}
	}
}
