package manifest

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestParseDocumentRefuses(t *testing.T) {
	d := digest.FromString("x").String()
	desc := func(mediaType string) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: mediaType, Digest: digest.Digest(d)}
	}
	config := `"config":{"digest":"` + d + `","size":1}`
	tests := []struct{ name, mediaType, data, text string }{
		{"not JSON", "", "<html>", "parse manifest"},
		{"empty", "", "{}", "neither an index nor"},
		{"both", ocispec.MediaTypeImageIndex, `{"manifests":[],` + config + `}`, "holds a configuration"},
		{"both, untyped", "", `{"manifests":[],` + config + `}`, "neither an index nor"},
		{"index with layers", "", `{"manifests":[],"layers":[]}`, "neither an index nor"},
		{"manifest that is an index", ocispec.MediaTypeImageManifest, `{"manifests":[]}`, "holds no configuration"},
		{"says otherwise itself", ocispec.MediaTypeImageManifest, `{"mediaType":"` + ocispec.MediaTypeImageIndex + `",` + config + `}`, "holds a configuration"},
		{"schema 1", "application/vnd.docker.distribution.manifest.v1+prettyjws", `{}`, "schema 1"},
		{"bad digest", "", `{"layers":[{"digest":"sha256:../../x","size":1}],` + config + `}`, "digest"},
		{"bad digest of the configuration", "", `{"config":{"digest":"x","size":1}}`, "digest"},
		{"negative size", "", `{"manifests":[{"digest":"` + d + `","size":-1}]}`, "size -1"},
	}
	for _, tt := range tests {
		_, err := Parse(desc(tt.mediaType), []byte(tt.data))
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.text)
		}
	}
	for _, good := range []string{`{"manifests":[]}`, `{` + config + `}`, `{"layers":[],` + config + `}`} {
		if _, err := Parse(desc(""), []byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

func TestWasmConfigs(t *testing.T) {
	desc := func(mediaType string) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString("x")}
	}
	long := strings.Repeat("x", maxInterface+1)
	many := strings.Repeat(`"a",`, maxInterfaces) + `"a"`
	for _, tt := range []struct{ name, mediaType, data, target, text string }{
		{"component", MediaTypeWasmConfig, `{"os":"wasip2","component":{"imports":["a"],"exports":[],"target":"wasi:cli/command@0.2.0"}}`, "wasi:cli/command@0.2.0", ""},
		{"module", MediaTypeWasmConfig, `{"os":"wasip1","component":null}`, "", ""},
		{"of another type", ocispec.MediaTypeImageConfig, `{"component":"x"}`, "", ""},
		{"not an object", MediaTypeWasmConfig, `{"component":"x"}`, "", "parse configuration"},
		{"many", MediaTypeWasmConfig, `{"component":{"exports":[` + many + `]}}`, "", "the component has 1001 exports"},
		{"long", MediaTypeWasmConfig, `{"component":{"imports":["` + long + `"]}}`, "", "a name of 1001 bytes"},
		{"long target", MediaTypeWasmConfig, `{"component":{"target":"` + long + `"}}`, "", "a name of 1001 bytes"},
	} {
		c, err := ParseConfig(desc(tt.mediaType), []byte(tt.data))
		if tt.text != "" {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %v; want %q", tt.name, err, tt.text)
			}
			continue
		}
		if err != nil || (c.Component != nil) != (tt.target != "") || c.Component != nil && c.Component.Target != tt.target {
			t.Errorf("%s: %+v, %v", tt.name, c.Component, err)
		}
	}
	for os, want := range map[string]string{"wasip2": "wasip2", "wasip1": "wasip1", "wasi": "wasip1", "linux": "wasip1", "": "wasip1"} {
		if got := (Config{OS: os, Arch: "wasm"}).ModulePlatform(); got.OS != want || got.Architecture != "wasm" {
			t.Errorf("%q: %+v", os, got)
		}
	}
}

// An entrypoint that is one empty word is how image builders take that of the image below away.
func TestEmptyEntrypoint(t *testing.T) {
	for data, want := range map[string][]string{`[""]`: nil, `null`: nil, `["a",""]`: {"a", ""}, `["",""]`: {"", ""}} {
		c, err := ParseConfig(ocispec.Descriptor{}, []byte(`{"config":{"Entrypoint":`+data+`,"Cmd":["b"]}}`))
		if err != nil || !slices.Equal(c.Config.Entrypoint, want) || !slices.Equal(c.Config.Cmd, []string{"b"}) {
			t.Errorf("%s: %q %q, %v", data, c.Config.Entrypoint, c.Config.Cmd, err)
		}
	}
}
