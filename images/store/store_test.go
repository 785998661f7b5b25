package store

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
)

// target makes a target whose images are named for their manifests.
func target(repo, name string, ids ...string) (Target, []Image) {
	t := Target{Repo: repo, Digest: digest.FromString(name), Images: map[digest.Digest]string{}}
	var images []Image
	for _, id := range ids {
		d := digest.FromString(id)
		t.Entries = append(t.Entries, ocispec.Descriptor{Digest: d})
		t.Images[d] = id
		images = append(images, Image{ID: id})
	}
	return t, images
}

func keepAll(_, _ Target, _ string) bool  { return true }
func keepNone(_, _ Target, _ string) bool { return false }

func TestState(t *testing.T) {
	s := newTx(newState())
	add := func(repo, name, tag string, keep Keep, ids ...string) Target {
		t.Helper()
		tg, images := target(repo, name, ids...)
		s.AddTarget(tg, keep, images...)
		if tag != "" {
			s.PointTag(tag, tg.Name(), keep)
		}
		if w := s.Check(); len(w) > 0 {
			t.Fatal(w)
		}
		return tg
	}
	named := func(full string) string {
		var out []string
		for _, tg := range s.Named(full) {
			out = append(out, strings.Join(tg.imageIDs(), "+"))
		}
		return strings.Join(out, " ")
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	one := add("r", "one", "r:t", keepNone, "a")
	expect("first", named("r:t"), "a")
	add("r", "one", "", keepNone, "b")
	expect("a second variant gets the tag", named("r:t"), "a+b")
	add("r", "two", "r:t", func(_, _ Target, id string) bool { return id == "b" }, "c")
	expect("the tag has moved for one of them", named("r:t"), "c b")
	expect("by digest", named(one.Name()), "a+b")
	add("r", "two", "", keepNone, "d")
	expect("the other has moved too", named("r:t"), "c+d")
	add("r", "one", "r:t", keepNone, "a")
	expect("back again", named("r:t"), "a+b")
	add("q", "one", "q:t", keepAll, "a")
	expect("tags of a", strings.Join(s.TagsOf("a"), " "), "q:t r:t")
	if n := len(s.Holding("a")); n != 2 {
		t.Errorf("%d targets hold a, want 2", n)
	}
	s.Forget("a")
	if w := s.Check(); len(w) > 0 {
		t.Error(w)
	}
	expect("after a went", named("r:t"), "b")
	expect("its only name", named("q:t"), "")
	s.Forget("b", "c", "d")
	if len(s.Images)+len(s.Targets)+len(s.Tags) != 0 {
		t.Errorf("left: %+v", s)
	}
}

func TestCheckFindsBreaches(t *testing.T) {
	s := newState()
	tg, _ := target("r", "one", "a")
	s.Targets[tg.Name()] = tg
	s.Targets["r@x"] = Target{Repo: "r"}
	s.Tags["r:t"] = Tag{Repo: "r", Points: []Point{{Digest: tg.Digest, Images: []string{"z"}}}}
	s.Tags["r:u"] = Tag{Repo: "r"}
	s.Images["b"] = Image{ID: "b"}
	if w := s.Check(); len(w) != 5 {
		t.Errorf("found %q", w)
	}
}

func TestByID(t *testing.T) {
	s := newState()
	for _, id := range []string{"sha256:abcd" + strings.Repeat("0", 60), "sha256:abce" + strings.Repeat("0", 60)} {
		s.Images[id] = Image{ID: id}
	}
	for prefix, want := range map[string]func(error) bool{
		"abcd": func(err error) bool { return err == nil }, "sha256:abcd": func(err error) bool { return err == nil },
		"abc": errdefs.IsInvalidArgument, "sha256:": errdefs.IsInvalidArgument, "bcd": errdefs.IsNotFound,
	} {
		if _, err := s.ByID(prefix); !want(err) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

func TestDB(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	d, err := OpenDB(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tg, images := target("r", "one", "a", "b")
	images[0].Created = time.Unix(1700000000, 0).UTC()
	if err := d.Update(func(s *Tx) error {
		s.AddTarget(tg, keepNone, images...)
		s.PointTag("r:t", tg.Name(), keepNone)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if err := d.Update(func(s *Tx) error { s.Forget("a"); return boom }); !errors.Is(err, boom) {
		t.Errorf("Update: %v", err)
	}
	if err := d.Update(func(s *Tx) error { s.Forget("b"); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDB(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second OpenDB: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = OpenDB(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := d.State()
	if w := s.Check(); len(w) > 0 {
		t.Error(w)
	}
	if len(s.Images) != 1 || !s.Images["a"].Created.Equal(images[0].Created) || len(s.Named("r:t")) != 1 {
		t.Errorf("read back %+v", s)
	}
}

// put changes the records behind the store's back.
func put(path string, change func(tx *bolt.Tx) error) error {
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	return errors.Join(b.Update(change), b.Close())
}

var errBroken = errors.New("broken")

// coming opens content from an offset on; left bytes come at a time, then errBroken (none if left <
// 0).
func coming(content string, left int, opened *atomic.Int32) Opener {
	return func(_ context.Context, offset int64) (io.ReadCloser, error) {
		if opened != nil {
			opened.Add(1)
		}
		rest := content[min(int(offset), len(content)):]
		if left >= 0 && left < len(rest) {
			return io.NopCloser(io.MultiReader(strings.NewReader(rest[:left]), iotest.ErrReader(errBroken))), nil
		}
		return io.NopCloser(strings.NewReader(rest)), nil
	}
}

func newContent(t *testing.T) (*Content, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "content")
	c, err := OpenContent(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

func descOf(s string) ocispec.Descriptor {
	return ocispec.Descriptor{Digest: digest.FromString(s), Size: int64(len(s))}
}

func TestSweepLeavesPinsAndTheYoung(t *testing.T) {
	c, _ := newContent(t)
	ctx := t.Context()
	for _, s := range []string{"kept", "pinned", "neither"} {
		if err := c.Ingest(ctx, descOf(s), coming(s, -1, nil)); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		var out []string
		for _, s := range []string{"kept", "pinned", "neither"} {
			if c.Has(ctx, descOf(s)) {
				out = append(out, s)
			}
		}
		return strings.Join(out, " ")
	}
	keep := map[digest.Digest]bool{descOf("kept").Digest: true}
	unpin := c.Pin(descOf("pinned").Digest)
	for _, step := range []struct {
		grace time.Duration
		unpin bool
		want  string
	}{{time.Hour, false, "kept pinned neither"}, {0, false, "kept pinned"}, {0, true, "kept"}} {
		if step.unpin {
			unpin()
			unpin() // once is enough, twice does no harm
		}
		if err := c.Sweep(ctx, keep, step.grace); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != step.want {
			t.Errorf("left %q, want %q", got, step.want)
		}
	}
	if bytes, inodes, err := c.Usage(ctx); bytes == 0 || bytes%512 != 0 || inodes != 1 || err != nil {
		t.Errorf("Usage: %d, %d, %v", bytes, inodes, err)
	}
}
