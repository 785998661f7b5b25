package pull

import (
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
)

// Tools make images of checkpoints, and say so in the manifest.
func TestCheckpointImages(t *testing.T) {
	for key, want := range map[string]string{
		"io.kubernetes.cri-o.annotations.checkpoint.name": "main", "org.criu.checkpoint.container.name": "main",
		"io.podman.annotations.checkpoint.name": "main", "org.example": "",
	} {
		m := manifest.Document{Config: &ocispec.Descriptor{}, Annotations: map[string]string{key: "main"}}
		if got := describe(ocispec.Descriptor{}, m, manifest.Config{}, false).Checkpoint; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
