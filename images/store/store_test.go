package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
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
	s := newState()
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
	d, err := OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	tg, images := target("r", "one", "a", "b")
	images[0].Created = time.Unix(1700000000, 0).UTC()
	if err := d.Update(func(s *State) error {
		s.AddTarget(tg, keepNone, images...)
		s.PointTag("r:t", tg.Name(), keepNone)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if err := d.Update(func(s *State) error { s.Forget("a"); return boom }); !errors.Is(err, boom) {
		t.Errorf("Update: %v", err)
	}
	if err := d.Update(func(s *State) error { s.Forget("b"); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDB(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second OpenDB: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = OpenDB(path)
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

type seekable struct{ *bytes.Reader }

func (seekable) Close() error { return nil }

// breaking gives n bytes at a time, then an error.
type breaking struct {
	seekable
	left int
}

func chunk(want, left int) int {
	if left < 0 { // no end
		return want
	}
	return min(want, left)
}

var errBroken = errors.New("broken")

func (b *breaking) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errBroken
	}
	n, err := b.seekable.Read(p[:chunk(len(p), b.left)])
	if b.left > 0 {
		b.left -= n
	}
	return n, err
}

func openFunc(open func() *breaking) func(context.Context) (io.ReadSeekCloser, error) {
	return func(context.Context) (io.ReadSeekCloser, error) { return open(), nil }
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

func ingests(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "ingest"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(entries)
}

func descOf(s string) ocispec.Descriptor {
	return ocispec.Descriptor{Digest: digest.FromString(s), Size: int64(len(s))}
}

func TestIngest(t *testing.T) {
	c, dir := newContent(t)
	ctx := t.Context()
	never := func(error) bool { return false }
	from := func(s string) func() *breaking {
		return func() *breaking { return &breaking{seekable{bytes.NewReader([]byte(s))}, -1} }
	}
	tests := []struct {
		name, want, comes, text string
	}{
		{"right", "hello", "hello", ""},
		{"again", "hello", "never read", ""},
		{"corrupt", "world", "w0rld", "is corrupt: its digest is " + digest.FromString("w0rld").String()},
		{"truncated", "world!", "wor", "is truncated: 3 of 6 bytes came"},
		{"too long", "wor", "world", "is corrupt: it is longer than 3 bytes"},
		{"empty", "", "", ""},
	}
	for _, tt := range tests {
		err := c.Ingest(ctx, descOf(tt.want), openFunc(from(tt.comes)), never)
		if tt.text == "" && err != nil || tt.text != "" && (!errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), tt.text)) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.text)
		}
		if has := c.Has(ctx, descOf(tt.want)); has != (tt.text == "") {
			t.Errorf("%s: Has is %v", tt.name, has)
		}
		if n := ingests(t, dir); n != 0 {
			t.Errorf("%s: %d ingests left", tt.name, n)
		}
	}
	for _, d := range []ocispec.Descriptor{{Digest: "sha256:../../x", Size: 1}, {Digest: digest.FromString("x"), Size: -1}} {
		if err := c.Ingest(ctx, d, nil, never); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", d, err)
		}
	}
	if err := c.Ingest(ctx, descOf("fails"), func(context.Context) (io.ReadSeekCloser, error) { return nil, errBroken }, never); !errors.Is(err, errBroken) {
		t.Errorf("error of open: %v", err)
	}
}

func TestIngestGoesOnWhereItBrokeOff(t *testing.T) {
	c, dir := newContent(t)
	content := "0123456789"
	opened := 0
	open := func() *breaking {
		opened++
		return &breaking{seekable{bytes.NewReader([]byte(content))}, 4}
	}
	broken := func(err error) bool { return errors.Is(err, errBroken) }
	if err := c.Ingest(t.Context(), descOf(content), openFunc(open), broken); err != nil {
		t.Fatal(err)
	}
	if opened != 3 {
		t.Errorf("opened %d times, want 3", opened)
	}
	none := func() *breaking { return &breaking{seekable{bytes.NewReader(nil)}, 0} }
	if err := c.Ingest(t.Context(), descOf("other"), openFunc(none), broken); !errors.Is(err, errBroken) {
		t.Errorf("without progress: %v", err)
	}
	if n := ingests(t, dir); n != 0 {
		t.Errorf("%d ingests left", n)
	}
}

func TestConcurrentIngestsOfOneBlob(t *testing.T) {
	c, _ := newContent(t)
	content := strings.Repeat("x", 1<<20)
	var mu sync.Mutex
	opened := 0
	open := func() *breaking {
		mu.Lock()
		defer mu.Unlock()
		opened++
		return &breaking{seekable{bytes.NewReader([]byte(content))}, -1}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Ingest(t.Context(), descOf(content), openFunc(open), func(error) bool { return false }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if opened != 1 {
		t.Errorf("fetched %d times", opened)
	}
}

func TestDamagedBlobIsFetchedAgain(t *testing.T) {
	c, _ := newContent(t)
	open := openFunc(func() *breaking { return &breaking{seekable{bytes.NewReader([]byte("hello"))}, -1} })
	never := func(error) bool { return false }
	if err := c.Ingest(t.Context(), descOf("hello"), open, never); err != nil {
		t.Fatal(err)
	}
	path := c.Path(descOf("hello").Digest)
	if err := os.Truncate(path, 2); err != nil {
		t.Fatal(err)
	}
	if c.Has(t.Context(), descOf("hello")) {
		t.Error("a damaged blob counts as there")
	}
	if err := c.Ingest(t.Context(), descOf("hello"), open, never); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "hello" {
		t.Errorf("read %q, %v", data, err)
	}
	// The descriptor is wrong, not the blob.
	lie := descOf("hello")
	lie.Size = 6
	if err := c.Ingest(t.Context(), lie, open, never); !errdefs.IsDataLoss(err) || !c.Has(t.Context(), descOf("hello")) {
		t.Errorf("with a wrong size: %v", err)
	}
}

func TestSweepLeavesPinsAndTheYoung(t *testing.T) {
	c, dir := newContent(t)
	ctx := t.Context()
	for _, s := range []string{"kept", "pinned", "neither"} {
		open := openFunc(func() *breaking { return &breaking{seekable{bytes.NewReader([]byte(s))}, -1} })
		if err := c.Ingest(ctx, descOf(s), open, func(error) bool { return false }); err != nil {
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
	if bytes, inodes, err := c.Usage(ctx); bytes != 4 || inodes != 1 || err != nil {
		t.Errorf("Usage: %d, %d, %v", bytes, inodes, err)
	}
	// An ingest of a process that was killed.
	if err := os.MkdirAll(filepath.Join(dir, "ingest", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"ref": "blob-x", "data": "abc"} {
		if err := os.WriteFile(filepath.Join(dir, "ingest", "x", name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenContent(dir); err != nil {
		t.Fatal(err)
	}
	if n := ingests(t, dir); n != 0 {
		t.Errorf("%d ingests left", n)
	}
}
