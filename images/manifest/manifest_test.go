package manifest

import (
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
