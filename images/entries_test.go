package images

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/manifest"
)

// An index that names the same index again and again is read as often as it differs, and what it
// says beside is not kept.
func TestIndexesThatRepeatThemselves(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	host := r.image("bomb", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	host.Annotations = map[string]string{"org.example.large": strings.Repeat("x", 100<<10)}
	at := r.index("bomb", "", slices.Repeat([]ocispec.Descriptor{host}, 7)...)
	for range manifest.IndexDepth - 1 {
		at = r.index("bomb", "", slices.Repeat([]ocispec.Descriptor{at}, 300)...)
	}
	r.index("bomb", "v1", at, host)
	r.asked()
	s.mustPull(r.host+"/bomb:v1", "")
	if got := r.asked(); len(got) > 2*(manifest.IndexDepth+4) {
		t.Errorf("%d requests: %q", len(got), got[:20])
	}
	info, err := os.Stat(disk.RecordsPath(s.root))
	if err != nil || info.Size() > 256<<10 {
		t.Errorf("the records have %d bytes, %v", info.Size(), err)
	}
	if entries := s.disk.DB.State().Named(r.host + "/bomb:v1")[0].Entries; len(entries) != 1 {
		t.Errorf("%d entries, want each once", len(entries))
	}
	if err := s.ExportTo(t.Context(), []string{r.host + "/bomb:v1"}, io.Discard); err != nil {
		t.Errorf("export: %v", err)
	}
	if got := r.asked(); len(got) > 2*(manifest.IndexDepth+4) {
		t.Errorf("export: %d requests: %q", len(got), got[:20])
	}
}

func TestIndexesAreBounded(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	host := r.image("app", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.index("app", "many", slices.Repeat([]ocispec.Descriptor{host}, manifest.MaxEntries+1)...)

	var parts []ocispec.Descriptor
	for i := range 3 {
		part := slices.Repeat([]ocispec.Descriptor{host}, manifest.MaxEntries/2)
		part[0].Annotations = map[string]string{"part": fmt.Sprint(i)}
		parts = append(parts, r.index("app", "", part...))
	}
	r.index("app", "parts", parts...)

	var large []ocispec.Descriptor
	for i := range manifest.MaxDocuments>>23 + 1 {
		other := host
		other.Annotations = map[string]string{"large": strings.Repeat(fmt.Sprint(i%10), 8<<20-1000)}
		large = append(large, r.index("app", "", other))
	}
	r.index("app", "large", large...)

	odd := host
	odd.Platform = &ocispec.Platform{OS: "linux", Architecture: strings.Repeat("a", manifest.MaxPlatform)}
	r.index("app", "platform", odd)

	for tag, want := range map[string]string{
		"many": "more than 1000 entries", "parts": "more than 1000 entries", "large": "more than 67108864 bytes",
	} {
		_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/app:" + tag})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", tag, err, want)
		}
	}
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/app:platform"}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a platform with a name of %d bytes: %v", manifest.MaxPlatform, err)
	}
	if st := s.disk.DB.State(); len(st.Images)+len(st.Targets)+len(st.Tags) != 0 {
		t.Errorf("left: %d images, %d targets, %d tags", len(st.Images), len(st.Targets), len(st.Tags))
	}
}
