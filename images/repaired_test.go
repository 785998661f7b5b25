package images

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// overwritten has a document replaced by another one.
func (ts *testService) overwritten(d digest.Digest) {
	ts.t.Helper()
	path := ts.disk.Content.Path(d)
	if err := os.Remove(path); err != nil {
		ts.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		ts.t.Fatal(err)
	}
}

// worlds pushes an index of two images, and pulls it. The first is the same in all of them.
func (r *testRegistry) worlds(s *testService, layer, platform string) ocispec.Descriptor {
	i := r.index("app", "v1", r.image("app", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(r.t, file{name: "a", content: "1"})),
		r.image("app", "", platform, ocispec.ImageConfig{}, gzipLayer(r.t, file{name: "b", content: layer})))
	s.mustPull(r.host+"/app:v1", "")
	return i
}

// A repair by one name is one of all names that lead to the same document.
func TestRepairByAnotherName(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	m := r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	s.mustPull(r.host+"/app:v1", "")
	if err := s.Tag(t.Context(), r.host+"/app:v1", []string{"0.invalid/mine:1"}); err != nil {
		t.Fatal(err)
	}
	s.overwritten(m.Digest)
	report := s.mustCheck(true)
	if len(report.Damaged) != 1 || !report.Damaged[0].Repaired || len(report.Damaged[0].Lost) > 0 || !s.disk.Content.Has(t.Context(), m) {
		t.Errorf("%+v", report)
	}
}

// Images share indexes: each is tried before any name is given up, and what is lost has a reason.
func TestRepairTriesAllImages(t *testing.T) {
	for _, gone := range []bool{false, true} {
		a, b, s := newTestRegistry(t), newTestRegistry(t), newTestService(t)
		index := a.worlds(s, "of a", "wasip1/wasm")
		b.worlds(s, "of b", "wasip1/wasm")
		asked := 0
		a.setFront(func(w http.ResponseWriter, _ *http.Request) bool {
			asked++
			if gone || asked == 1 {
				w.WriteHeader(http.StatusNotFound)
			}
			return gone || asked == 1
		})
		s.overwritten(index.Digest)
		report := s.mustCheck(true)
		for _, d := range report.Damaged {
			if lost := d.Dropped || len(d.Lost) > 0; lost != gone || lost && !strings.Contains(d.Why, a.host) {
				t.Errorf("gone %v: %+v", gone, d)
			}
		}
		if len(report.Damaged) == 0 || gone == s.disk.Content.Has(t.Context(), index) {
			t.Errorf("gone %v: %+v", gone, report)
		}
	}
}

// A pull while a repair is under way is not undone by it.
func TestPullDuringRepair(t *testing.T) {
	a, b, s := newTestRegistry(t), newTestRegistry(t), newTestService(t)
	ofA, ofB := a.worlds(s, "of a", otherPlatform), b.worlds(s, "of b", otherPlatform)
	s.overwritten(ofA.Digest)
	s.overwritten(ofB.Digest)
	held, asked := make(chan struct{}), make(chan struct{}, 100)
	refuse := func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusNotFound); return true }
	hold := func(w http.ResponseWriter, r *http.Request) bool {
		asked <- struct{}{}
		<-held
		return refuse(w, r)
	}
	if a.host > b.host {
		a, b = b, a // names are tried in their order
	}
	a.setFront(refuse)
	b.setFront(hold)
	checked := make(chan error)
	go func() { _, err := s.Check(context.Background(), true); checked <- err }()
	<-asked
	a.setFront(nil)
	s.mustPull(a.host+"/app:v1", "")
	close(held)
	if err := <-checked; err != nil {
		t.Error(err)
	}
	if _, err := s.Find(t.Context(), a.host+"/app:v1", ""); err != nil {
		t.Errorf("pulled, and lost: %v", err)
	}
}

// What a start has dropped is one damage of one image.
func TestStartTellsAnImageOnce(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index := r.worlds(s, "of r", "wasip1/wasm")
	if err := s.Tag(t.Context(), r.host+"/app:v1", []string{"example.org/mine:1"}); err != nil {
		t.Fatal(err)
	}
	s.overwritten(index.Digest)
	s.close()
	s.open()
	report := s.mustCheck(false)
	seen := map[string]bool{}
	for _, d := range report.Damaged {
		if seen[d.Image] || len(d.Lost) == 0 {
			t.Errorf("%+v", d)
		}
		seen[d.Image] = true
	}
	if len(seen) == 0 {
		t.Error("nothing is told")
	}
}

// A pull fetches an index that is missing, though its images are here.
func TestPullOfAMissingIndex(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index := r.worlds(s, "of r", "wasip1/wasm")
	s.overwritten(index.Digest)
	ctx, cancel := context.WithCancel(t.Context())
	r.setFront(func(_ http.ResponseWriter, q *http.Request) bool { cancel(); <-q.Context().Done(); return true })
	if _, err := s.Check(ctx, true); err == nil {
		t.Error("a repair that is cancelled succeeds")
	}
	r.setFront(nil)
	s.mustPull(r.host+"/app:v1", "")
	if !s.disk.Content.Has(t.Context(), index) {
		t.Error("the index is missing after a pull")
	}
	s.close()
	s.open()
	if _, err := s.Find(t.Context(), r.host+"/app:v1", ""); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
