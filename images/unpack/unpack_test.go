package unpack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/space"
)

func newStore(t *testing.T) (*Store, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts overlayfs: run it as root")
	}
	root := t.TempDir()
	s, err := Open(testOptions(root))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || bytes.Contains(mounts, []byte(root)) {
			t.Errorf("mounts left (%v)", err)
		}
	})
	return s, root
}

// tarOf makes a tar stream of headers; a name is a file unless Typeflag says
// otherwise, its content is its Linkname.
func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		content := ""
		if h.Typeflag == 0 {
			h.Typeflag, content, h.Linkname = tar.TypeReg, h.Linkname, ""
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func text(name, content string) tar.Header { return tar.Header{Name: name, Linkname: content} }
func dir(name string) tar.Header           { return tar.Header{Name: name, Typeflag: tar.TypeDir} }
func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
}

func opener(data []byte) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

func testOptions(root string) Options {
	return Options{Root: root, MaxLayerSize: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
}

// applyLayer stages and commits one layer.
func applyLayer(t *testing.T, s *Store, l Layer) error {
	defer s.Pin(l.Chain)()
	if err := s.Stage(t.Context(), l); err != nil {
		return err
	}
	return s.Commit(t.Context(), []Layer{l}, func() {})
}

// apply unpacks layers upon each other and returns the topmost chain.
func apply(t *testing.T, s *Store, tars ...[]byte) digest.Digest {
	t.Helper()
	var diffs []digest.Digest
	var chain digest.Digest
	var layers []Layer
	for _, data := range tars {
		diffs = append(diffs, digest.FromBytes(data))
		l := Layer{Parent: chain, Chain: identity.ChainID(slices.Clone(diffs)), Diff: digest.FromBytes(data), Open: opener(data)}
		layers = append(layers, l)
		chain = l.Chain
		defer s.Pin(chain)()
	}
	for _, l := range slices.Backward(layers) { // none needs those below
		if err := s.Stage(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Commit(t.Context(), layers, func() {}); err != nil {
		t.Fatal(err)
	}
	return chain
}

func gz(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// tree lists a chain through a root that is mounted.
func tree(t *testing.T, s *Store, chain digest.Digest) []string {
	t.Helper()
	mounts, err := s.Prepare(t.Name(), chain, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Remove(t.Name()); err != nil {
			t.Error(err)
		}
	}()
	at := t.TempDir()
	if err := mount.All(mounts, at); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mount.UnmountAll(at, 0); err != nil {
			t.Error(err)
		}
	}()
	var out []string
	err = filepath.WalkDir(at, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == at {
			return err
		}
		name := strings.TrimPrefix(p, at+"/")
		switch {
		case d.IsDir():
			name += "/"
		case d.Type() == 0:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			name += "=" + string(data)
		}
		out = append(out, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLayers(t *testing.T) {
	base := []tar.Header{dir("d/"), text("d/a", "1"), text("d/b", "1"), dir("d/sub/"), text("d/sub/c", "1"), text("f", "1")}
	tests := []struct {
		name   string
		layers [][]tar.Header
		want   string
	}{
		{"one", [][]tar.Header{base}, "d/ d/a=1 d/b=1 d/sub/ d/sub/c=1 f=1"},
		{"changed and added", [][]tar.Header{base, {text("f", "2"), text("d/n", "2")}}, "d/ d/a=1 d/b=1 d/n=2 d/sub/ d/sub/c=1 f=2"},
		{"whiteout of a file", [][]tar.Header{base, {text("d/.wh.a", "")}}, "d/ d/b=1 d/sub/ d/sub/c=1 f=1"},
		{"whiteout of a directory", [][]tar.Header{base, {text("d/.wh.sub", "")}}, "d/ d/a=1 d/b=1 f=1"},
		{"opaque directory", [][]tar.Header{base, {dir("d/"), text("d/.wh..wh..opq", ""), text("d/n", "2")}}, "d/ d/n=2 f=1"},
		{"opaque mark after the files", [][]tar.Header{base, {dir("d/"), text("d/n", "2"), text("d/.wh..wh..opq", "")}}, "d/ d/n=2 f=1"},
		{"whiteout in the lowest layer", [][]tar.Header{{text("a", "1"), text(".wh.b", "")}}, "a=1"},
		{"gone and back", [][]tar.Header{base, {text(".wh.f", "")}, {text("f", "3")}}, "d/ d/a=1 d/b=1 d/sub/ d/sub/c=1 f=3"},
		{"a file becomes a directory", [][]tar.Header{base, {dir("f/"), text("f/x", "2")}}, "d/ d/a=1 d/b=1 d/sub/ d/sub/c=1 f/ f/x=2"},
		{"an empty layer", [][]tar.Header{base, {}}, "d/ d/a=1 d/b=1 d/sub/ d/sub/c=1 f=1"},
		{"up and out", [][]tar.Header{{text("../../x", "1"), text("/../y", "1"), text("d/../../z", "1")}}, "x=1 y=1 z=1"},
		{"through a symlink", [][]tar.Header{{link("l", "/etc"), text("l/hostile", "1")}}, "etc/ etc/hostile=1 l"},
		{"through a symlink upwards", [][]tar.Header{{link("l", "../../../../.."), text("l/hostile", "1")}}, "hostile=1 l"},
		{"whiteout through a symlink", [][]tar.Header{{text("a", "1")}, {link("l", "/"), text("l/.wh.a", "")}}, "l"},
		{"whiteout of what its own layer has", [][]tar.Header{{text("a", "1")}, {text("a", "2"), text(".wh.a", "")}}, "a=2"},
		{"whiteout of a directory before it comes anew", [][]tar.Header{base, {text("d/.wh.sub", ""), dir("d/sub/"), text("d/sub/n", "2")}}, "d/ d/a=1 d/b=1 d/sub/ d/sub/n=2 f=1"},
		{"whiteout of a directory that came anew", [][]tar.Header{base, {dir("d/sub/"), text("d/sub/n", "2"), text("d/.wh.sub", "")}}, "d/ d/a=1 d/b=1 d/sub/ d/sub/n=2 f=1"},
		{"marks of no meaning", [][]tar.Header{base, {text(".wh..wh.plnk", ""), text("d/.wh..wh.aufs", "")}}, "d/ d/a=1 d/b=1 d/sub/ d/sub/c=1 f=1"},
		{"a symlink to what only the layer below has", [][]tar.Header{base, {link("l", "d/sub"), text("l/n", "2")}}, "d/ d/a=1 d/b=1 d/sub/ d/sub/c=1 d/sub/n=2 f=1 l"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := newStore(t)
			var tars [][]byte
			for _, l := range tt.layers {
				tars = append(tars, tarOf(t, l...))
			}
			if got := strings.Join(tree(t, s, apply(t, s, tars...)), " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	if _, err := os.Lstat("/etc/hostile"); err == nil {
		t.Fatal("a layer wrote to the host")
	}
}

func TestCompressions(t *testing.T) {
	s, _ := newStore(t)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, pack := range map[string]func([]byte) []byte{
		"plain": func(b []byte) []byte { return b },
		"gzip":  func(b []byte) []byte { return gz(t, b) },
		"zstd":  func(b []byte) []byte { return enc.EncodeAll(b, nil) },
	} {
		data := tarOf(t, text(name, "x"))
		l := Layer{Chain: digest.FromBytes(data), Diff: digest.FromBytes(data), Open: opener(pack(data))}
		if err := applyLayer(t, s, l); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := tree(t, s, l.Chain); len(got) != 1 || got[0] != name+"=x" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestBadLayersLeaveNothing(t *testing.T) {
	s, root := newStore(t)
	good := tarOf(t, text("a", strings.Repeat("x", 100000)))
	tests := []struct {
		name string
		data []byte
		diff digest.Digest
		loss bool
	}{
		{"not what the configuration says", gz(t, good), digest.FromString("other"), true},
		{"cut short", gz(t, good)[:40], digest.FromBytes(good), false},
		{"not a tar", []byte(strings.Repeat("no tar ", 1000)), digest.FromString("x"), false},
		{"hard link to nowhere", tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../../../etc/passwd"}), digest.FromString("x"), false},
	}
	for _, tt := range tests {
		l := Layer{Chain: digest.FromString(tt.name), Diff: tt.diff, Open: opener(tt.data)}
		err := applyLayer(t, s, l)
		if err == nil || errdefs.IsDataLoss(err) != tt.loss || !strings.Contains(err.Error(), tt.diff.String()) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if s.Has(l.Chain) {
			t.Errorf("%s: it is there", tt.name)
		}
	}
	broken := errors.New("broken")
	l := Layer{Chain: "sha256:x", Diff: digest.FromString("x"), Open: func(context.Context) (io.ReadCloser, error) { return nil, broken }}
	if err := applyLayer(t, s, l); !errors.Is(err, broken) {
		t.Errorf("error of Open: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(root, "layers", "snapshots")); err != nil || len(left) != 0 {
		t.Errorf("%d directories left, %v", len(left), err)
	}
}

func TestConcurrentApplyOfOneChain(t *testing.T) {
	s, _ := newStore(t)
	data := tarOf(t, text("a", "x"))
	defer s.Pin(digest.FromBytes(data))()
	var opened atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := applyLayer(t, s, Layer{Chain: digest.FromBytes(data), Diff: digest.FromBytes(data),
				Open: func(ctx context.Context) (io.ReadCloser, error) {
					opened.Add(1)
					return opener(data)(ctx)
				}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := opened.Load(); n != 1 {
		t.Errorf("unpacked %d times", n)
	}
}

func TestSweepKeepsWhatIsNeeded(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	base, x, y, z := tarOf(t, text("base", "")), tarOf(t, text("x", "")), tarOf(t, text("y", "")), tarOf(t, text("z", ""))
	bx, by, bz := apply(t, s, base, x), apply(t, s, base, y), apply(t, s, base, z)
	b := digest.FromBytes(base)
	has := func() string {
		var out []string
		for name, c := range map[string]digest.Digest{"b": b, "bx": bx, "by": by, "bz": bz} {
			if s.Has(c) {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	if _, err := s.Prepare("c", by, map[string]string{"sunaba/image": "i"}); err != nil {
		t.Fatal(err)
	}
	unpin := s.Pin(bz)
	sweep := func(keep ...digest.Digest) {
		t.Helper()
		m := make(map[digest.Digest]bool)
		for _, k := range keep {
			m[k] = true
		}
		s.Sweep(m)
	}
	steps := []struct {
		do   func()
		want string
	}{
		{func() { sweep(bx) }, "b bx by bz"},
		{func() { sweep() }, "b by bz"},
		{func() { unpin(); sweep() }, "b by"},
		{func() {
			if err := s.Remove("c"); err != nil {
				t.Fatal(err)
			}
			sweep(b)
		}, "b"},
		{func() { sweep() }, ""},
	}
	for i, step := range steps {
		step.do()
		if got := has(); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	if layers, roots, err := s.Usage(ctx); err != nil || layers.Inodes != 0 || roots.Inodes != 0 {
		t.Errorf("Usage: %+v, %+v, %v", layers, roots, err)
	}
}

func TestRoots(t *testing.T) {
	s, _ := newStore(t)
	chain := apply(t, s, tarOf(t, text("a", "x")))
	if _, err := s.Prepare("c", "sha256:absent", nil); !errdefs.IsNotFound(err) {
		t.Errorf("Prepare upon nothing: %v", err)
	}
	for range 2 {
		if _, err := s.Prepare("c", chain, map[string]string{"sunaba/image": "i"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Prepare("c", "", nil); !errdefs.IsAlreadyExists(err) {
		t.Errorf("Prepare of the key with another chain: %v", err)
	}
	roots := s.Roots()
	if len(roots) != 1 || roots[0].Key != "c" || roots[0].Chain != chain || roots[0].Labels["sunaba/image"] != "i" || len(roots[0].Labels) != 1 {
		t.Errorf("Roots: %+v", roots)
	}
	for range 2 {
		if err := s.Remove("c"); err != nil {
			t.Error(err)
		}
	}
}

// A root is measured where it is now, also if its key had another one before.
func TestRootUsage(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	var known space.Known
	for size := range int64(3) {
		if _, err := s.RootUsage(ctx, "c", new(space.Known)); !errdefs.IsNotFound(err) {
			t.Fatalf("of a key without a root: %v", err)
		}
		mounts, err := s.Prepare("c", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range size + 1 {
			if u, err := s.RootUsage(ctx, "c", &known); err != nil || u.Inodes != i+1 || u.Bytes < i<<20 || u.Bytes > i<<20+1<<16 {
				t.Errorf("root %d with %d files: %+v, %v", size, i, u, err)
			}
			if err := os.WriteFile(filepath.Join(mounts[0].Source, fmt.Sprint(i)), make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Remove("c"); err != nil {
			t.Fatal(err)
		}
	}
}

// A root is shown with what was written to it. As long as nothing was, a single layer is shown
// without a mount.
func TestWithRoot(t *testing.T) {
	s, _ := newStore(t)
	mounted := func() int {
		table, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(table), "\n")
	}
	for key, layers := range map[string][][]byte{"one": {tarOf(t, text("a", "x"))}, "two": {tarOf(t, text("a", "old")), tarOf(t, text("a", "x"))}} {
		mounts, err := s.Prepare(key, apply(t, s, layers...), nil)
		if err != nil {
			t.Fatal(err)
		}
		before := mounted()
		shows := func(a, b string, mounts int) {
			t.Helper()
			if err := s.WithRoot(key, func(dir string) error {
				gotA, _ := os.ReadFile(filepath.Join(dir, "a"))
				gotB, _ := os.ReadFile(filepath.Join(dir, "b"))
				if string(gotA) != a || string(gotB) != b || mounted()-before != mounts {
					t.Errorf("%s: a is %q, b %q, with %d mounts; want %q, %q, %d", key, gotA, gotB, mounted()-before, a, b, mounts)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		shows("x", "", len(layers)-1)
		upper := ""
		for _, o := range mounts[0].Options {
			if dir, ok := strings.CutPrefix(o, "upperdir="); ok {
				upper = dir
			}
		}
		if err := os.WriteFile(filepath.Join(upper, "b"), []byte("y"), 0o600); err != nil {
			t.Fatal(err)
		}
		shows("x", "y", 1)
	}
}

// What was being made, and what was being deleted, is gone after the next start; layers and roots
// stay.
func TestOpenRemovesWhatAKilledProcessLeft(t *testing.T) {
	s, root := newStore(t)
	chain := apply(t, s, tarOf(t, text("a", "x")), tarOf(t, text("b", "x")))
	gone := apply(t, s, tarOf(t, text("c", "x")))
	before, err := s.Prepare("c", chain, map[string]string{"sunaba/image": "i"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prepare("gone", gone, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.retire("gone"); err != nil {
		t.Fatal(err)
	}
	s.Sweep(map[digest.Digest]bool{chain: true})
	if dirs, err := s.removed(); err != nil || len(dirs) != 2 {
		t.Fatalf("removed: %q, %v", dirs, err)
	}
	mounts, err := s.mountsOf(folder{record: record{Parent: chain, View: true}})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(s.mounts, "left")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := mount.All(mounts, at); err != nil {
		t.Fatal(err)
	}
	if _, err := s.create(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(testOptions(root))
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]int{"layers/snapshots": 3, "layers/staging": 0, "mounts": 0} {
		if left, err := os.ReadDir(filepath.Join(root, dir)); err != nil || len(left) != want {
			t.Errorf("%s: %v, %v; want %d", dir, left, err, want)
		}
	}
	if !s.Whole(chain) || s.Lost() {
		t.Error("a finished layer has gone")
	}
	if after, err := s.Prepare("c", chain, nil); err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("the root has %v, had %v, %v", after, before, err)
	}
}

// A process was killed while it found out whether overlayfs can be used.
func TestOpenRemovesAProbe(t *testing.T) {
	root := t.TempDir()
	left := filepath.Join(root, "layers", "multiple-lowerdir-check1")
	for _, dir := range []string{"lower1", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(left, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := "lowerdir=" + left + "/lower1,upperdir=" + left + "/upper,workdir=" + left + "/work"
	if err := unix.Mount("overlay", left+"/merged", "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	s, err := Open(testOptions(root))
	if err != nil {
		unix.Unmount(left+"/merged", 0)
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("it is still there (%v)", err)
	}
}

func TestOpenWhereOverlayCannotBe(t *testing.T) {
	if _, err := Open(testOptions(filepath.Join(t.TempDir(), "a,b"))); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a name with a comma: %v", err)
	}
	// Overlayfs refuses a directory on another overlayfs with an upper layer
	// of its own: what a container without a volume would give us.
	base := t.TempDir()
	var dirs []string
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		dirs = append(dirs, filepath.Join(base, d))
		if err := os.Mkdir(dirs[len(dirs)-1], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := "lowerdir=" + dirs[0] + ",upperdir=" + dirs[1] + ",workdir=" + dirs[2]
	if err := unix.Mount("overlay", dirs[3], "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dirs[3], 0)
	_, err := Open(testOptions(filepath.Join(dirs[3], "images")))
	if err == nil || !strings.Contains(err.Error(), "filesystem type overlay") || !strings.Contains(err.Error(), "ext4") {
		t.Errorf("on overlayfs: %v", err)
	}
}
