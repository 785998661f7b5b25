package images

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A name gives its variants a second name, an id that one alone; both stay over a restart, and what
// the first repository has shown the second has not.
func TestTag(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index, host, _ := appIndex(t, r, "app", "v1", "1")
	appIndex(t, r, "app", "v2", "2")
	one, two := r.host+"/app:v1", r.host+"/app:v2"
	s.mustPull(one, "")
	s.mustPull(two, "")
	if err := s.Tag(t.Context(), one, []string{"example.org/mine", r.host + "/app:stable"}); err != nil {
		t.Fatal(err)
	}
	id := s.mustFind(one, "runc").ID
	if err := s.Tag(t.Context(), id[len("sha256:"):][:12], []string{"example.org/linux:1"}); err != nil {
		t.Fatal(err)
	}
	s.close()
	s.open()
	for _, handler := range []string{"runc", "wasm"} {
		want := s.mustFind(one, handler)
		for _, name := range []string{"example.org/mine:latest", r.host + "/app:stable"} {
			if got := s.mustFind(name, handler); got.ID != want.ID {
				t.Errorf("%s is %s for %s, want %s", name, got.ID, handler, want.ID)
			}
		}
	}
	img := s.mustFind("example.org/linux:1", "")
	for _, want := range []string{"example.org/linux@" + host.Digest.String(), "example.org/mine@" + index.Digest.String()} {
		if img.ID != id || !slices.Contains(img.RepoDigests, want) {
			t.Errorf("%s has digests %q, want %s", img.ID, img.RepoDigests, want)
		}
	}
	if guest := s.mustFind("example.org/linux:1", "wasm"); guest.ID != id {
		t.Errorf("the name of an id leads to %s too", guest.ID)
	}
	st := s.disk.DB.State()
	if !st.Targets[r.host+"/app@"+index.Digest.String()].Manifests[host.Digest].Shown {
		t.Error("tagging within a repository has forgotten what that has shown")
	}
	if st.Targets["example.org/mine@"+index.Digest.String()].Manifests[host.Digest].Shown {
		t.Error("the new name's repository has shown nothing")
	}

	// The name moves, for every variant.
	if err := s.Tag(t.Context(), two, []string{"example.org/mine:latest"}); err != nil {
		t.Fatal(err)
	}
	for _, handler := range []string{"runc", "wasm"} {
		if got, want := s.mustFind("example.org/mine", handler).ID, s.mustFind(two, handler).ID; got != want {
			t.Errorf("moved: %s for %s, want %s", got, handler, want)
		}
	}
	if img := s.mustFind(one, "runc"); slices.Contains(img.RepoTags, "example.org/mine:latest") {
		t.Errorf("the older image has the name still: %q", img.RepoTags)
	}
	// A pull under the new name asks the name's own registry, and a removed image leaves no name.
	if err := s.Remove(t.Context(), "example.org/linux:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(t.Context(), id, ""); !errdefs.IsNotFound(err) {
		t.Errorf("removed: %v", err)
	}
}

func TestTagRefuses(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	s.mustPull(ref, "")
	sum := digest.FromString("x").String()
	for name, tt := range map[string]struct {
		source string
		names  []string
		class  func(error) bool
		text   string
	}{
		"absent":          {"example.org/none", []string{"a:1"}, errdefs.IsNotFound, `tag image "example.org/none"`},
		"digest":          {ref, []string{"a@" + sum}, errdefs.IsInvalidArgument, "a digest cannot be given"},
		"tag and digest":  {ref, []string{"a:1@" + sum}, errdefs.IsInvalidArgument, "a digest cannot be given"},
		"an id":           {ref, []string{sum}, errdefs.IsInvalidArgument, "image id"},
		"malformed":       {ref, []string{"a:-x"}, errdefs.IsInvalidArgument, "a:-x"},
		"upper case":      {ref, []string{"A:1"}, errdefs.IsInvalidArgument, "A:1"},
		"too long":        {ref, []string{"a/" + strings.Repeat("b", 300)}, errdefs.IsInvalidArgument, "parse image reference"},
		"one of several":  {ref, []string{"good:1", "b:-x"}, errdefs.IsInvalidArgument, "b:-x"},
		"nothing to give": {ref, nil, errdefs.IsInvalidArgument, "no new name"},
	} {
		if err := s.Tag(t.Context(), tt.source, tt.names); !tt.class(err) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Find(t.Context(), "good:1", ""); !errdefs.IsNotFound(err) {
		t.Errorf("one bad name, and another was given: %v", err)
	}
}

// A name is taken alone from an image that has others; the last one takes the image with it. An id
// of an image with several names is refused unless it is forced.
func TestUntag(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	one, two, three := r.host+"/app:v1", "example.org/mine:1", "example.org/mine:2"
	s.mustPull(one, "")
	if err := s.Tag(t.Context(), one, []string{two, three}); err != nil {
		t.Fatal(err)
	}
	id := s.mustFind(one, "runc").ID
	untag := func(name string, force, want bool) {
		t.Helper()
		if removed, err := s.Untag(t.Context(), name, force); err != nil || removed != want {
			t.Errorf("untag %s: removed %v, %v; want %v", name, removed, err, want)
		}
		s.check()
	}
	untag(one, false, false)
	img := s.mustFind(two, "runc")
	if _, err := s.Find(t.Context(), one, ""); !errdefs.IsNotFound(err) || img.ID != id {
		t.Errorf("%s leads somewhere: %v", one, err)
	}
	for _, name := range slices.Concat(img.RepoTags, img.RepoDigests) {
		if strings.HasPrefix(name, r.host) {
			t.Errorf("the image still has the name %s", name)
		}
	}
	for _, name := range []string{id, img.RepoDigests[0]} {
		if _, err := s.Untag(t.Context(), name, false); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "2 names") || !strings.Contains(err.Error(), "--force") {
			t.Errorf("%s: %v", name, err)
		}
	}
	untag(two, false, false)
	if got := s.mustFind(three, "wasm"); len(got.RepoTags) != 1 || len(got.RepoDigests) != 1 {
		t.Errorf("its names are %q and %q", got.RepoTags, got.RepoDigests)
	}
	// A variant that has a name of its own stays when the others lose their last one.
	if err := s.Tag(t.Context(), id, []string{"example.org/linux:1"}); err != nil {
		t.Fatal(err)
	}
	untag(three, false, true)
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("left are %+v, %v", list, err)
	}
	if err := s.Tag(t.Context(), id, []string{"example.org/linux:2"}); err != nil {
		t.Fatal(err)
	}
	untag(id, true, true)
	if n := s.blobs(); n != 0 {
		t.Errorf("%d blobs are left", n)
	}
	if _, err := s.Untag(t.Context(), one, false); !errdefs.IsNotFound(err) {
		t.Errorf("what is not there: %v", err)
	}
	// CRI's RemoveImage takes all names, as before.
	s.mustPull(one, "")
	if err := s.Tag(t.Context(), one, []string{two}); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("left are %+v, %v", list, err)
	}
}

// The digest that an image was pulled by is a name as a tag is: removing by it does not take the
// image from another repository that has a name for it.
func TestUntagByDigest(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	m := r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	name, mine := r.host+"/app@"+m.Digest.String(), "example.org/mine:1"
	img := s.mustPull(name, "")
	if err := s.Tag(t.Context(), img.ID, []string{mine}); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{name, img.ID} {
		if removed, err := s.Untag(t.Context(), by, false); removed || !errdefs.IsFailedPrecondition(err) ||
			!strings.Contains(err.Error(), "2 names") || !strings.Contains(err.Error(), mine) || !strings.Contains(err.Error(), name) {
			t.Errorf("by %s: removed %v, %v", by, removed, err)
		}
	}
	s.mustFind(mine, "")
	// A tag of the same repository is that name, not another.
	s.mustPull(r.host+"/app:v1", "")
	if _, err := s.Untag(t.Context(), name, false); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "2 names") {
		t.Errorf("with a tag: %v", err)
	}
	if removed, err := s.Untag(t.Context(), mine, false); removed || err != nil {
		t.Errorf("the other name: removed %v, %v", removed, err)
	}
	if removed, err := s.Untag(t.Context(), name, false); !removed || err != nil {
		t.Errorf("the last name: removed %v, %v", removed, err)
	}
	if n := s.blobs(); n != 0 {
		t.Errorf("%d blobs are left", n)
	}
}
