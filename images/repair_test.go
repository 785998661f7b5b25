package images

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// damage overwrites the files of that name in all layers.
func (ts *testService) damage(name string) {
	ts.t.Helper()
	files, err := filepath.Glob(filepath.Join(ts.root, "layers/snapshots/*/fs", name))
	if err != nil || len(files) != 1 {
		ts.t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte("9"), 0o644); err != nil {
		ts.t.Fatal(err)
	}
}

func (ts *testService) mustCheck(repair bool) CheckReport {
	ts.t.Helper()
	r, err := ts.Check(ts.t.Context(), repair)
	if err != nil {
		ts.t.Fatal(err)
	}
	return r
}

// The repair of an image whose registry is gone says what is lost, and leaves nothing of it and all
// of others: those that share its sound layers, and what was repaired before.
func TestRepairWithoutRegistry(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	base := gzipLayer(t, file{name: "base", content: "1"})
	r.image("lost", "v1", hostPlatform, ocispec.ImageConfig{}, base, gzipLayer(t, file{name: "a", content: "1"}))
	r.image("kept", "v1", hostPlatform, ocispec.ImageConfig{}, base, gzipLayer(t, file{name: "b", content: "2"}))
	lost, kept := r.host+"/lost:v1", r.host+"/kept:v1"
	s.mustPull(lost, "")
	s.mustPull(kept, "")
	if err := s.Tag(t.Context(), lost, []string{"example.org/mine:1"}); err != nil {
		t.Fatal(err)
	}
	names := s.mustFind(lost, "")
	s.damage("a")
	s.without(r)
	report := s.mustCheck(true)
	if len(report.Damaged) != 1 {
		t.Fatalf("%+v", report)
	}
	d := report.Damaged[0]
	want := slices.Concat(names.RepoTags, names.RepoDigests)
	slices.Sort(want)
	slices.Sort(d.Lost)
	if !d.Dropped || d.Repaired || d.Image != names.ID || !strings.Contains(d.Why, "connection refused") || !strings.Contains(d.Why, "example.org") {
		t.Errorf("%+v", d)
	}
	equal(t, "lost are", d.Lost, want)
	if n := s.layerDirs(); n != 2 {
		t.Errorf("%d layers are left, want 2", n)
	}
	for range 2 {
		if again := s.mustCheck(true); again.Images != 1 || len(again.Damaged)+len(again.Records) != 0 {
			t.Errorf("checked again: %+v", again)
		}
		equal(t, "the other image", s.tree("c", s.mustFind(kept, "")), []string{"b=2", "base=1"})
		for _, name := range []string{lost, "example.org/mine:1", names.ID} {
			if _, err := s.Find(t.Context(), name, ""); !errdefs.IsNotFound(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.check()
		s.close()
		s.open()
	}
}

// An index that is damaged is fetched again too. Where it is not to be had, the image loses the
// names that led to it, and keeps its others, also through a restart.
func TestRepairOfAnIndex(t *testing.T) {
	gone, there, s := newTestRegistry(t), newTestRegistry(t), newTestService(t)
	var indexes []ocispec.Descriptor
	for i, r := range []*testRegistry{gone, there} {
		m := r.image("app", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
		other := r.image("app", "", otherPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "b", content: strconv.Itoa(i)}))
		indexes = append(indexes, r.index("app", "v1", m, other))
		s.mustPull(r.host+"/app:v1", "")
	}
	if indexes[0].Digest == indexes[1].Digest {
		t.Fatal("the indexes are the same, nothing is tested")
	}
	spoil := func(d digest.Digest) {
		t.Helper()
		path := s.disk.Content.Path(d)
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range indexes {
		spoil(i.Digest)
	}
	if report := s.mustCheck(true); len(report.Damaged) != 1 || !report.Damaged[0].Repaired || len(report.Damaged[0].Lost) != 0 {
		t.Errorf("with both registries: %+v", report)
	}
	if again := s.mustCheck(false); len(again.Damaged) != 0 {
		t.Errorf("after the repair: %+v", again)
	}
	s.without(gone)
	spoil(indexes[0].Digest)
	lost := []string{gone.host + "/app:v1", gone.host + "/app@" + indexes[0].Digest.String()}
	report := s.mustCheck(true)
	if len(report.Damaged) != 1 || !report.Damaged[0].Repaired || report.Damaged[0].Dropped || !strings.Contains(report.Damaged[0].Why, "connection refused") {
		t.Fatalf("without one of them: %+v", report)
	}
	equal(t, "lost are", report.Damaged[0].Lost, lost)
	for range 2 {
		if again := s.mustCheck(false); again.Images != 1 || len(again.Damaged)+len(again.Records) != 0 {
			t.Errorf("checked again: %+v", again)
		}
		equal(t, "tree", s.tree("c", s.mustFind(there.host+"/app:v1", "")), []string{"a=1"})
		for _, name := range lost {
			if _, err := s.Find(t.Context(), name, ""); !errdefs.IsNotFound(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.close()
		s.open()
	}
	// A start, which asks no registry, does so too.
	spoil(indexes[1].Digest)
	s.mustPull(there.host+"/app@"+s.mustFind(there.host+"/app:v1", "").Manifest.Digest.String(), "")
	s.close()
	s.open()
	if _, err := s.Find(t.Context(), there.host+"/app:v1", ""); !errdefs.IsNotFound(err) {
		t.Errorf("by the index: %v", err)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || len(list[0].RepoDigests) != 1 {
		t.Errorf("left are %+v, %v", list, err)
	}
	s.mustPull(there.host+"/app:v1", "")
}

// What is dropped when the store is opened is in the next report, once.
func TestCheckTellsWhatWasDropped(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	m := r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	img := s.mustPull(r.host+"/app:v1", "")
	if err := os.Truncate(s.disk.Content.Path(m.Digest), 3); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.open()
	report := s.mustCheck(true)
	if len(report.Damaged) != 1 {
		t.Fatalf("%+v", report)
	}
	d := report.Damaged[0]
	if d.Image != img.ID || !d.Dropped || d.Repaired || len(d.What) != 1 || !strings.Contains(d.Why, "opened") {
		t.Errorf("%+v", d)
	}
	equal(t, "lost are", d.Lost, []string{r.host + "/app:v1", r.host + "/app@" + m.Digest.String()})
	if n, layers := s.blobs(), s.layerDirs(); n+layers != 0 {
		t.Errorf("%d blobs and %d layers are left", n, layers)
	}
	if again := s.mustCheck(false); len(again.Damaged) != 0 {
		t.Errorf("told again: %+v", again)
	}
}
