package store

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// ingests returns how much has come in of which blobs.
func ingests(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "ingest"))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]int64)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = info.Size()
	}
	return out
}

func TestIngest(t *testing.T) {
	c, dir := newContent(t)
	ctx := t.Context()
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
		err := c.Ingest(ctx, descOf(tt.want), coming(tt.comes, -1, nil))
		if tt.text == "" && err != nil || tt.text != "" && (!errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), tt.text)) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.text)
		}
		if has := c.Has(ctx, descOf(tt.want)); has != (tt.text == "") {
			t.Errorf("%s: Has is %v", tt.name, has)
		}
		if left := ingests(t, dir); len(left) != 0 {
			t.Errorf("%s: left %v", tt.name, left)
		}
	}
	for _, d := range []ocispec.Descriptor{{Digest: "sha256:../../x", Size: 1}, {Digest: digest.FromString("x"), Size: -1}} {
		if err := c.Ingest(ctx, d, nil); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", d, err)
		}
	}
	fails := func(context.Context, int64) (io.ReadCloser, error) { return nil, errBroken }
	if err := c.Ingest(ctx, descOf("fails"), fails); !errors.Is(err, errBroken) {
		t.Errorf("error of open: %v", err)
	}
	full := func(context.Context, int64) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("no"), errReader{unix.ENOSPC})), nil
	}
	if err := c.Ingest(ctx, descOf("no room"), full); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("full disk: %v", err)
	}
	if left := ingests(t, dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// At whatever byte a blob breaks off, and in whatever state a killed process left it, it ends
// whole, and no byte is asked for twice but those that were wrong.
func TestIngestGoesOnWhereItBrokeOff(t *testing.T) {
	const content = "0123456789"
	for cut := range len(content) + 1 {
		for _, restart := range []bool{false, true} {
			c, dir := newContent(t)
			err := c.Ingest(t.Context(), descOf(content), coming(content, cut, nil))
			if cut == len(content) {
				if err != nil {
					t.Fatal(err)
				}
				continue
			}
			if !errors.Is(err, errBroken) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if restart {
				if c, err = OpenContent(dir); err != nil {
					t.Fatal(err)
				}
			}
			var from int64 = -1
			err = c.Ingest(t.Context(), descOf(content), func(ctx context.Context, offset int64) (io.ReadCloser, error) {
				from = offset
				return coming(content, -1, nil)(ctx, offset)
			})
			if err != nil || from != int64(cut) || !c.Has(t.Context(), descOf(content)) || len(ingests(t, dir)) != 0 {
				t.Errorf("cut at %d: went on at %d: %v", cut, from, err)
			}
		}
	}
}

func TestIngestDoesNotTrustWhatIsLeft(t *testing.T) {
	const content = "0123456789"
	for name, tt := range map[string]struct {
		left string
		want []int64
	}{
		"wrong bytes": {"01x34", []int64{5, 0}},
		"wrong whole": {"01234x6789", []int64{0}},
		"whole":       {content, nil},
		"too long":    {content + "x", []int64{0}},
		"nothing":     {"", []int64{0}},
	} {
		_, dir := newContent(t)
		d := descOf(content)
		if err := os.WriteFile(filepath.Join(dir, "ingest", "sha256-"+d.Digest.Encoded()), []byte(tt.left), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := OpenContent(dir)
		if err != nil {
			t.Fatal(err)
		}
		var asked []int64
		err = c.Ingest(t.Context(), d, func(ctx context.Context, offset int64) (io.ReadCloser, error) {
			asked = append(asked, offset)
			return coming(content, -1, nil)(ctx, offset)
		})
		if err != nil || !c.Has(t.Context(), d) || len(asked) != len(tt.want) {
			t.Errorf("%s: asked from %d, want %d: %v", name, asked, tt.want, err)
		}
		for i := range tt.want {
			if i < len(asked) && asked[i] != tt.want[i] {
				t.Errorf("%s: asked from %d, want %d", name, asked, tt.want)
			}
		}
	}
}

func TestConcurrentIngestsOfOneBlob(t *testing.T) {
	c, _ := newContent(t)
	content := strings.Repeat("x", 1<<20)
	var opened atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Ingest(t.Context(), descOf(content), coming(content, -1, &opened)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := opened.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

func TestDamagedBlobIsFetchedAgain(t *testing.T) {
	c, _ := newContent(t)
	open := coming("hello", -1, nil)
	if err := c.Ingest(t.Context(), descOf("hello"), open); err != nil {
		t.Fatal(err)
	}
	path := c.Path(descOf("hello").Digest)
	if err := os.Truncate(path, 2); err != nil {
		t.Fatal(err)
	}
	if c.Has(t.Context(), descOf("hello")) {
		t.Error("a damaged blob counts as there")
	}
	if err := c.Ingest(t.Context(), descOf("hello"), open); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "hello" {
		t.Errorf("read %q, %v", data, err)
	}
	// The descriptor is wrong, not the blob.
	lie := descOf("hello")
	lie.Size = 6
	if err := c.Ingest(t.Context(), lie, open); !errdefs.IsDataLoss(err) || !c.Has(t.Context(), descOf("hello")) {
		t.Errorf("with a wrong size: %v", err)
	}
}

func TestSweepIngests(t *testing.T) {
	c, dir := newContent(t)
	for _, s := range []string{"young one", "old one"} {
		if err := c.Ingest(t.Context(), descOf(s), coming(s, 3, nil)); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
	}
	old := "sha256-" + descOf("old one").Digest.Encoded()
	if err := os.Chtimes(filepath.Join(dir, "ingest", old), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	// What a program of the past left is of no use.
	if err := os.MkdirAll(filepath.Join(dir, "ingest", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if bytes, inodes, err := c.Usage(t.Context()); bytes < 6 || inodes < 2 || err != nil {
		t.Errorf("Usage: %d, %d, %v", bytes, inodes, err)
	}
	c, err := OpenContent(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SweepIngests(time.Hour); err != nil {
		t.Fatal(err)
	}
	left := ingests(t, dir)
	if len(left) != 1 || left["sha256-"+descOf("young one").Digest.Encoded()] != 3 {
		t.Errorf("left %v", left)
	}
	// One that is under way stays, however old.
	step, stepped := make(chan struct{}), make(chan error)
	go func() {
		stepped <- c.Ingest(t.Context(), descOf("young one"), func(ctx context.Context, offset int64) (io.ReadCloser, error) {
			step <- struct{}{}
			<-step
			return coming("young one", -1, nil)(ctx, offset)
		})
	}()
	<-step
	if err := c.SweepIngests(0); err != nil {
		t.Fatal(err)
	}
	step <- struct{}{}
	if err := <-stepped; err != nil || !c.Has(t.Context(), descOf("young one")) {
		t.Errorf("swept under way: %v", err)
	}
}

// scripted gives what the test sends, and the test's error at the end.
func scripted(parts <-chan string, end error) Opener {
	return func(context.Context, int64) (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			for p := range parts {
				io.WriteString(w, p) // an error shows at the reader
			}
			w.CloseWithError(end)
		}()
		return r, nil
	}
}

func TestFollow(t *testing.T) {
	const content = "0123456789"
	d := descOf(content)
	c, _ := newContent(t)
	read := make(chan string)
	ended := make(chan error, 1)
	go func() {
		r, err := c.Follow(t.Context(), d) // before anybody brings it in
		if err != nil {
			ended <- err
			return
		}
		defer r.Close()
		buf := make([]byte, 4)
		for {
			n, err := r.Read(buf)
			if n > 0 {
				read <- string(buf[:n])
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	parts := make(chan string)
	ingested := make(chan error, 1)
	go func() { ingested <- c.Ingest(t.Context(), d, scripted(parts, errBroken)) }()
	parts <- "012"
	if got := <-read; got != "012" {
		t.Errorf("read %q", got)
	}
	close(parts)
	if err := <-ingested; !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the reader ended with the first ingest: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	go func() { ingested <- c.Ingest(t.Context(), d, coming(content, -1, nil)) }()
	var got strings.Builder
	for got.Len() < 7 {
		got.WriteString(<-read)
	}
	if err := <-ended; err != io.EOF || got.String() != "3456789" {
		t.Errorf("read %q, %v", got.String(), err)
	}
	if err := <-ingested; err != nil {
		t.Fatal(err)
	}
	r, err := c.Follow(t.Context(), d) // a blob that is there
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if all, err := io.ReadAll(r); err != nil || string(all) != content {
		t.Errorf("read %q, %v", all, err)
	}
}

func TestFollowOfACorruptBlob(t *testing.T) {
	c, _ := newContent(t)
	d := descOf("0123456789")
	parts := make(chan string, 2)
	ingested := make(chan error, 1)
	go func() { ingested <- c.Ingest(t.Context(), d, scripted(parts, io.EOF)) }()
	r, err := c.Follow(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	parts <- "01234"
	buf := make([]byte, 5)
	if _, err := io.ReadFull(r, buf); err != nil {
		t.Fatal(err)
	}
	parts <- "56x89"
	close(parts)
	if err := <-ingested; !errdefs.IsDataLoss(err) {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errdefs.IsAborted(err) {
		t.Errorf("after corruption: %v, want ErrAborted", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Follow(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Follow of what nobody brings: %v", err)
	}
}

// The reader's context may end with an error about another blob; what has come of this one is as
// good as before.
func TestIngestKeepsWhatAnotherErrorEnds(t *testing.T) {
	c, dir := newContent(t)
	other := func(context.Context, int64) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("0123"), errReader{errdefs.ErrDataLoss})), nil
	}
	if err := c.Ingest(t.Context(), descOf("0123456789"), other); !errdefs.IsDataLoss(err) {
		t.Fatal(err)
	}
	if left := ingests(t, dir); len(left) != 1 {
		t.Errorf("left %v, want the part that came", left)
	}
}

// A blob that is only passing through can be followed and dropped, is no content of the store, and
// is a part of a blob for the process after this one.
func TestIngestPassing(t *testing.T) {
	const content = "0123456789"
	c, dir := newContent(t)
	d := descOf(content)
	var opened atomic.Int32
	for range 2 {
		if err := c.IngestPassing(t.Context(), d, coming(content, -1, &opened)); err != nil {
			t.Fatal(err)
		}
	}
	if opened.Load() != 1 || c.Has(t.Context(), d) || len(ingests(t, dir)) != 1 {
		t.Errorf("opened %d times, content: %v, parts: %v", opened.Load(), c.Has(t.Context(), d), ingests(t, dir))
	}
	r, err := c.Follow(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != content {
		t.Errorf("followed %q, %v", got, err)
	}
	r.Close()
	unpin := c.Pin(d.Digest)
	if err := errors.Join(c.Drop(t.Context(), d.Digest), c.SweepIngests(0), c.DropPart(d.Digest)); err != nil || len(ingests(t, dir)) != 1 {
		t.Errorf("pinned: %v, parts: %v", err, ingests(t, dir))
	}
	unpin()

	again, err := OpenContent(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.IngestPassing(t.Context(), d, coming(content, -1, &opened)); err != nil || opened.Load() != 1 {
		t.Errorf("after a restart: %v, opened %d times", err, opened.Load())
	}
	if err := os.WriteFile(filepath.Join(dir, "ingest", "sha256-"+d.Digest.Encoded()), []byte("01234x6789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err = OpenContent(dir); err != nil {
		t.Fatal(err)
	}
	if err := again.IngestPassing(t.Context(), d, coming(content, -1, &opened)); err != nil || opened.Load() != 2 {
		t.Errorf("damaged: %v, opened %d times", err, opened.Load())
	}
	// Somebody wants it as content after all.
	if err := again.Ingest(t.Context(), d, coming(content, -1, &opened)); err != nil || opened.Load() != 2 || !again.Has(t.Context(), d) {
		t.Errorf("as content: %v, opened %d times", err, opened.Load())
	}
	if left := ingests(t, dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if err := again.Drop(t.Context(), d.Digest); err != nil || again.Has(t.Context(), d) {
		t.Errorf("Drop: %v", err)
	}
	if err := again.IngestPassing(t.Context(), d, coming(content, -1, &opened)); err != nil || again.Drop(t.Context(), d.Digest) != nil {
		t.Fatal(err)
	}
	if left := ingests(t, dir); len(left) != 0 || again.passing[d.Digest] {
		t.Errorf("after Drop: left %v", left)
	}
}
