package manifest

import (
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// FuzzManifest is for manifests and indexes: what they are is found out from their bytes.
func FuzzManifest(f *testing.F) {
	d := `"digest":"` + digest.FromString("x").String() + `","size":1`
	for _, s := range []string{
		`{}`, `null`, `[]`, `{"config":{` + d + `},"layers":[{` + d + `,"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip"}]}`,
		`{"manifests":[{` + d + `,"platform":{"os":"linux","architecture":"amd64"}}]}`, `{"manifests":[{"digest":"sha256:../x","size":-1}]}`,
		`{"config":{` + d + `},"manifests":[]}`, `{"config":{` + d + `,"mediaType":"application/vnd.wasm.config.v0+json"},"layers":[{` + d + `,"mediaType":"application/wasm"}]}`,
		`{"mediaType":"application/vnd.docker.distribution.manifest.v1+json","config":{}}`, `{"config":{},"Config":{` + d + `}}`,
	} {
		for _, t := range []string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, ""} {
			f.Add([]byte(s), t)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, mediaType string) {
		m, err := Parse(ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
		if err != nil {
			return
		}
		if images.IsIndexType(mediaType) != m.IsIndex() && (images.IsIndexType(mediaType) || images.IsManifestType(mediaType)) {
			t.Errorf("said to be %q, index: %v", mediaType, m.IsIndex())
		}
		all := slices.Concat(m.Layers, m.Manifests)
		if m.Config != nil {
			all = append(all, *m.Config)
		}
		for _, d := range all {
			if d.Digest.Validate() != nil || d.Size < 0 {
				t.Errorf("accepted %q of size %d", d.Digest, d.Size)
			}
		}
		if m.IsIndex() {
			return
		}
		if module, err := IsModule(m); err == nil && module && len(m.Layers) != 1 {
			t.Errorf("a module of %d layers", len(m.Layers))
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `{"os":"linux","architecture":"arm","variant":"v7","rootfs":{"diff_ids":["` + digest.FromString("x").String() + `"]},"config":{"User":"1:2","Env":["A=b"]}}`,
		`{"created":"2026-01-02T03:04:05Z"}`, `{"rootfs":{"diff_ids":["sha256:x"]}}`, `{"os":1}`, `{"layerDigests":[""]}`, `{"architecture":"x86_64","os":"LINUX"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
		if err != nil {
			return
		}
		for _, d := range c.RootFS.DiffIDs {
			if d.Validate() != nil {
				t.Errorf("accepted diff id %q", d)
			}
		}
		if p := c.Platform(); p.OS == "" && p.Architecture == "" {
			t.Error("no platform")
		}
	})
}
