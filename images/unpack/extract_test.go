package unpack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/continuity/sysx"
	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/images/unpack/extract"
	"github.com/sunaba-project/sunaba/images/unpack/fingerprint"
)

func layerOf(data []byte) Layer {
	return Layer{Chain: digest.FromBytes(data), Diff: digest.FromBytes(data), Open: opener(data)}
}

// upper returns the directory of a committed layer.
func upper(t *testing.T, s *Store, chain digest.Digest) string {
	t.Helper()
	f, err := s.layer(chain)
	if err != nil {
		t.Fatal(err)
	}
	return s.upper(f)
}

// A layer that names a file but not its directory says nothing of the directory.
func TestImpliedDirectoriesLookAsBelow(t *testing.T) {
	s, _ := newStore(t)
	var tars [][]byte
	tars = append(tars,
		tarOf(t, tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 3, Gid: 4, PAXRecords: map[string]string{"SCHILY.xattr.user.k": "v"}},
			tar.Header{Name: "tmp/deep/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 5}, text("tmp/deep/a", "1"), text("was", "a file")),
		tarOf(t, text("unrelated", "1")),
		tarOf(t, text("tmp/deep/b", "2"), text("new/c", "2"), text("was/d", "2")),
		tarOf(t, text("tmp/deep/.wh.a", "")))
	chain := apply(t, s, tars...)
	mounts, err := s.Prepare("c", chain, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if err := mount.All(mounts, at); err != nil {
		t.Fatal(err)
	}
	defer mount.UnmountAll(at, 0)
	for _, tt := range []struct {
		name     string
		mode     os.FileMode
		uid, gid uint32
	}{
		{"tmp", 0o777 | os.ModeSticky, 3, 4}, {"tmp/deep", 0o700, 5, 0}, {"new", 0o755, 0, 0}, {"was", 0o755, 0, 0},
	} {
		info, err := os.Stat(filepath.Join(at, tt.name))
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if got := info.Mode() &^ os.ModeDir; got != tt.mode || st.Uid != tt.uid || st.Gid != tt.gid {
			t.Errorf("%s: %v %d:%d, want %v %d:%d", tt.name, got, st.Uid, st.Gid, tt.mode, tt.uid, tt.gid)
		}
	}
	if v, err := sysx.LGetxattr(filepath.Join(at, "tmp"), "user.k"); err != nil || string(v) != "v" {
		t.Errorf("attribute of tmp: %q, %v", v, err)
	}
	for _, c := range identityOf(tars) {
		if err := s.Check(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
}

func identityOf(tars [][]byte) []digest.Digest {
	var diffs []digest.Digest
	for _, data := range tars {
		diffs = append(diffs, digest.FromBytes(data))
	}
	return identity.ChainIDs(diffs)
}

// bomb is a gzip stream of that many zeros, as the content of a file or behind the archive.
func TestLayersBeyondTheLimits(t *testing.T) {
	s, root := newStore(t) // a layer unpacks to 1 MiB at most
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 64<<20)
	sparse := sparseTar(t, 1<<40)
	file := tarOf(t, tar.Header{Name: "zeros", Linkname: string(zeros[:2<<20])})
	many := tarOf(t, slices.Repeat([]tar.Header{{Name: "x", Linkname: string(zeros[:600<<10])}}, 2)...)
	for name, data := range map[string][]byte{
		"a large file, gzip":          gz(t, file),
		"a large file, zstd":          enc.EncodeAll(file, nil),
		"a large file, plain":         file,
		"a file again and again":      many,
		"zeros behind the archive":    gz(t, append(tarOf(t, text("a", "1")), zeros...)),
		"a sparse file of a terabyte": sparse,
	} {
		l := layerOf(data)
		err := applyLayer(t, s, l)
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "1048576 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var wide bytes.Buffer
	w, err := zstd.NewWriter(&wide, zstd.WithWindowSize(256<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(tarOf(t, text("a", "1"))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Flush(), w.Close()); err != nil {
		t.Fatal(err)
	}
	l := layerOf(wide.Bytes())
	if err := applyLayer(t, s, l); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "134217728 bytes of memory") {
		t.Errorf("a stream with a wide window: %v", err)
	}
	// What is said of content that is not what was meant is worth nothing.
	broken := errors.New("the blob was corrupt")
	l = layerOf(file)
	l.Open = func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(file), &failing{broken})), nil
	}
	if err := applyLayer(t, s, l); !errors.Is(err, broken) || errdefs.IsInvalidArgument(err) {
		t.Errorf("a large file of a corrupt blob: %v", err)
	}
	enough := errors.New("enough")
	l = layerOf(tarOf(t, text("a", "123456")))
	l.Grow = func(n int64) error {
		if n < 6 {
			t.Errorf("told of %d bytes", n)
		}
		return enough
	}
	if err := applyLayer(t, s, l); !errors.Is(err, enough) {
		t.Errorf("stopped by Grow: %v", err)
	}
	for _, dir := range []string{"staging", "snapshots"} {
		if left, err := os.ReadDir(filepath.Join(root, "layers", dir)); err != nil || len(left) != 0 {
			t.Errorf("%d left in %s, %v", len(left), dir, err)
		}
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// sparseTar is an archive with one file, of which the last byte alone is written
// out; in the old format of GNU tar.
func sparseTar(t *testing.T, size int64) []byte {
	t.Helper()
	block := make([]byte, 512)
	copy(block, "sparse")
	copy(block[100:], "0000644\x000000000\x000000000\x00")
	copy(block[124:], fmt.Sprintf("%011o\x00", 1))
	copy(block[136:], "00000000000\x00")
	block[156] = 'S'
	copy(block[257:], "ustar  \x00")
	number := func(at int, n int64) {
		if n < 1<<33 {
			copy(block[at:], fmt.Sprintf("%011o\x00", n))
			return
		}
		block[at] = 0x80
		for i := 11; i > 0; i-- {
			block[at+i] = byte(n)
			n >>= 8
		}
	}
	number(386, size-1)
	number(398, 1)
	number(483, size)
	copy(block[148:], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	data := make([]byte, 512)
	data[0] = 'x'
	return slices.Concat(block, data, make([]byte, 1024))
}

func TestSparseFilesHaveHoles(t *testing.T) {
	s, _ := newStore(t)
	const size = 1 << 20
	chain := apply(t, s, sparseTar(t, size))
	info, err := os.Stat(filepath.Join(upper(t, s, chain), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if room := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != size || room > size/2 {
		t.Errorf("%d bytes take %d", info.Size(), room)
	}
	if !info.ModTime().Equal(info.ModTime().Truncate(1e9)) || info.ModTime().Unix() != 0 {
		t.Errorf("digging changed the time to %s", info.ModTime())
	}
	data, err := os.ReadFile(filepath.Join(upper(t, s, chain), "sparse"))
	if err != nil || data[size-1] != 'x' || bytes.ContainsRune(data[:size-1], 'x') {
		t.Errorf("content is not the same (%v)", err)
	}
}

func TestSpecialEntries(t *testing.T) {
	s, _ := newStore(t)
	attributes := map[string]string{
		"SCHILY.xattr.user.k": "v", "SCHILY.xattr.trusted.overlay.redirect": "/x", "SCHILY.xattr.user.overlay.opaque": "y",
		"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x04" + strings.Repeat("\x00", 14),
	}
	chain := apply(t, s, tarOf(t,
		tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666},
		tar.Header{Name: "loop", Typeflag: tar.TypeBlock, Devmajor: 7, Devminor: 0, Mode: 0o660},
		tar.Header{Name: "pipe", Typeflag: tar.TypeFifo},
		tar.Header{Name: "a", Linkname: "1", Mode: 0o4755, Uid: 1000, PAXRecords: attributes},
		tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "a", Mode: 0o4755, Uid: 1000, PAXRecords: attributes},
		tar.Header{Name: "d/opaque/", Typeflag: tar.TypeDir, PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}},
	))
	dir := upper(t, s, chain)
	var a, b, null unix.Stat_t
	if err := errors.Join(unix.Lstat(dir+"/a", &a), unix.Lstat(dir+"/b", &b), unix.Lstat(dir+"/null", &null)); err != nil {
		t.Fatal(err)
	}
	if a.Ino != b.Ino || a.Uid != 1000 || a.Mode&unix.S_ISUID == 0 {
		t.Errorf("a %+v, b %+v", a, b)
	}
	if null.Mode&unix.S_IFMT != unix.S_IFCHR || uint64(null.Rdev) != unix.Mkdev(1, 3) {
		t.Errorf("null: %o %x", null.Mode, null.Rdev)
	}
	for path, want := range map[string]string{"a": "security.capability user.k", "d/opaque": ""} {
		names, err := sysx.LListxattr(filepath.Join(dir, path))
		slices.Sort(names)
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("attributes of %s: %q, %v; want %q", path, got, err, want)
		}
	}
	if err := s.Check(t.Context(), chain); err != nil {
		t.Error(err)
	}
}

// The names of so many layers do not fit into the page that mount(2) takes.
func TestManyLayers(t *testing.T) {
	s, _ := newStore(t)
	var tars [][]byte
	for i := range MaxLayers {
		tars = append(tars, tarOf(t, text(fmt.Sprint("f", i), "1"), text("same", fmt.Sprint(i))))
	}
	chain := apply(t, s, tars...)
	if _, err := s.Prepare("c", chain, nil); err != nil {
		t.Fatal(err)
	}
	look := func(dir string) error {
		names, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		same, err := os.ReadFile(filepath.Join(dir, "same"))
		if len(names) != MaxLayers+1 || string(same) != fmt.Sprint(MaxLayers-1) {
			t.Errorf("%d files, same is %q", len(names), same)
		}
		return err
	}
	if err := s.WithRoot("c", look); err != nil {
		t.Errorf("a root: %v", err)
	}
	if err := s.WithChain(chain, look); err != nil {
		t.Errorf("a chain: %v", err)
	}
}

func TestStagedStaysWhileItIsPinned(t *testing.T) {
	s, root := newStore(t)
	data := tarOf(t, text("a", "1"))
	l := layerOf(data)
	count := func(dir string) int {
		entries, err := os.ReadDir(filepath.Join(root, "layers", dir))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if err := s.Stage(t.Context(), l); !errdefs.IsAborted(err) || count("staging") != 0 {
		t.Errorf("without a pin: %v, %d left", err, count("staging"))
	}
	one, two := s.Pin(l.Chain), s.Pin(l.Chain)
	if err := s.Stage(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if layers, _, err := s.Usage(t.Context()); err != nil || layers.Inodes == 0 {
		t.Errorf("Usage: %+v, %v", layers, err)
	}
	one()
	if count("staging") != 1 || s.Has(l.Chain) {
		t.Error("staged is not as it should be")
	}
	child := Layer{Parent: l.Chain, Chain: "sha256:" + digest.Digest(strings.Repeat("0", 64)), Diff: l.Diff}
	if err := s.Commit(t.Context(), []Layer{l, child}, func() {}); !errdefs.IsFailedPrecondition(err) || s.Has(l.Chain) {
		t.Errorf("Commit of what is not all there: %v", err)
	}
	two()
	if n := count("staging"); n != 0 {
		t.Errorf("%d staged left", n)
	}
	if err := s.Commit(t.Context(), []Layer{l}, func() {}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Commit of what has gone: %v", err)
	}
	if n := count("snapshots"); n != 0 {
		t.Errorf("%d snapshots", n)
	}
}

func TestDamagedLayersAreFoundAndReplaced(t *testing.T) {
	base := tarOf(t, dir("d/"), text("d/a", "12345"), text("b", "1"), link("l", "b"),
		tar.Header{Name: "x", Linkname: "1", PAXRecords: map[string]string{"SCHILY.xattr.user.k": "v"}})
	top := tarOf(t, text("top", "1"))
	for name, damage := range map[string]func(dir string) error{
		"emptied":         func(dir string) error { return os.Truncate(dir+"/d/a", 0) },
		"zeroed":          func(dir string) error { return os.WriteFile(dir+"/d/a", make([]byte, 5), 0o755) },
		"one bit":         func(dir string) error { return os.WriteFile(dir+"/d/a", []byte("12355"), 0o755) },
		"a file gone":     func(dir string) error { return os.Remove(dir + "/b") },
		"a file too many": func(dir string) error { return os.WriteFile(dir+"/n", nil, 0o644) },
		"mode":            func(dir string) error { return os.Chmod(dir+"/b", 0o700) },
		"owner":           func(dir string) error { return os.Chown(dir+"/b", 1, 1) },
		"link":            func(dir string) error { return errors.Join(os.Remove(dir+"/l"), os.Symlink("x", dir+"/l")) },
		"attribute":       func(dir string) error { return sysx.LSetxattr(dir+"/x", "user.k", []byte("w"), 0) },
		"all gone":        func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			s, root := newStore(t)
			ctx := t.Context()
			chain := apply(t, s, base, top)
			bottom := digest.FromBytes(base)
			if err := errors.Join(s.Check(ctx, bottom), s.Check(ctx, chain)); err != nil {
				t.Fatal(err)
			}
			if err := damage(upper(t, s, bottom)); err != nil {
				t.Fatal(err)
			}
			if err := s.Check(ctx, bottom); !errdefs.IsDataLoss(err) {
				t.Errorf("Check: %v", err)
			}
			if err := s.Check(ctx, chain); err != nil {
				t.Errorf("Check of the layer above: %v", err)
			}
			if err := s.MarkDamaged(bottom); err != nil {
				t.Fatal(err)
			}
			if s.Has(bottom) || s.Whole(chain) || !s.Has(chain) {
				t.Error("the mark has not the effect that it should have")
			}
			if err := s.Check(ctx, bottom); !errdefs.IsDataLoss(err) {
				t.Errorf("Check of what is marked: %v", err)
			}
			if err := applyLayer(t, s, layerOf(base)); err != nil {
				t.Fatal(err)
			}
			if err := s.Check(ctx, bottom); err != nil || !s.Whole(chain) {
				t.Errorf("after the repair: %v", err)
			}
			if got := tree(t, s, chain); !slices.Contains(got, "d/a=12345") || !slices.Contains(got, "top=1") {
				t.Errorf("tree %q", got)
			}
			if left, err := filepath.Glob(root + "/layers/staging/*"); err != nil || len(left) != 0 {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}

// What is set aside for containers goes with the next boot.
func TestAsideGoesWithTheBoot(t *testing.T) {
	s, root := newStore(t)
	if err := errors.Join(os.MkdirAll(s.asideDir()+"/1/fs", 0o755), os.MkdirAll(root+"/layers/aside/earlier/1/fs", 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := s.openAside(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(root + "/layers/aside/*")
	if err != nil || !slices.Equal(left, []string{s.asideDir()}) {
		t.Errorf("left: %q, %v", left, err)
	}
}

// No archive, whatever it holds, changes anything outside its directory.
func FuzzExtract(f *testing.F) {
	for _, headers := range [][]tar.Header{
		{dir("d/"), text("d/a", "1"), text("d/.wh.b", ""), text("d/.wh..wh..opq", "")},
		{text("../../x", "1"), link("l", "../.."), text("l/x", "1"), {Name: "h", Typeflag: tar.TypeLink, Linkname: "../canary"}},
		{link("l", "/"), {Name: "l/../canary", Typeflag: tar.TypeLink, Linkname: "l/canary"}, text("l/.wh.canary", "")},
		{{Name: "p", Typeflag: tar.TypeFifo}, {Name: "n", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, text("p", "1")},
		{text("a", "1"), text("a/b", "1"), dir("."), text(".wh.", ""), text(".wh..", "")},
	} {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range headers {
			content := h.Linkname
			if h.Typeflag == 0 {
				h.Typeflag, h.Linkname, h.Size = tar.TypeReg, "", int64(len(content))
			} else {
				content = ""
			}
			h.Mode = 0o644
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			io.WriteString(w, content)
		}
		w.Close()
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		canary := filepath.Join(outer, "canary")
		if err := os.WriteFile(canary, []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
		root := filepath.Join(outer, "fs")
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		x := extract.Extractor{MaxBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)}
		for _, parent := range []digest.Digest{"", "sha256:x"} {
			l := layerOf(data)
			l.Parent = parent
			_, sums, err := x.Extract(t.Context(), l, root)
			if err != nil {
				continue
			}
			noted, err := fingerprint.Of(t.Context(), root, sums)
			read, rerr := fingerprint.Of(t.Context(), root, nil)
			if err := errors.Join(err, rerr); err != nil || noted.String() != read.String() {
				t.Errorf("what was unpacked is %s, and %s when it is read: %v", noted, read, err)
			}
		}
		entries, err := os.ReadDir(outer)
		if err != nil || len(entries) != 2 {
			t.Errorf("%d entries beside the directory, %v", len(entries), err)
		}
		if got, err := os.ReadFile(canary); err != nil || string(got) != "alive" {
			t.Errorf("canary: %q, %v", got, err)
		}
		if info, err := os.Lstat(canary); err == nil && (info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Nlink != 1) {
			t.Errorf("canary: %v, %d links", info.Mode(), info.Sys().(*syscall.Stat_t).Nlink)
		}
	})
}

// An entry that no layer may have is refused by its name, and what came before it is not kept.
func TestEntriesThatAreRefused(t *testing.T) {
	s, _ := newStore(t)
	owned := func(uid, gid int) tar.Header { return tar.Header{Name: "d/bad", Uid: uid, Gid: gid} }
	number := func(major, minor int64) tar.Header {
		return tar.Header{Name: "d/bad", Typeflag: tar.TypeChar, Devmajor: major, Devminor: minor}
	}
	for why, h := range map[string]tar.Header{
		"a whiteout of no name":           text("d/.wh.", ""),
		"a whiteout of the folder":        text("d/.wh..", ""),
		"a whiteout of the folder above":  text("d/.wh...", ""),
		"a user that the kernel has not":  owned(1<<32-1, 0),
		"a group that the kernel has not": owned(0, 1<<32-1),
		"a user beyond 32 bits":           owned(1<<40, 0),
		"a negative group":                owned(0, -1),
		"a device beyond 32 bits":         number(1<<32, 0),
		"a negative device":               number(0, -1),
		"a link to the root":              {Name: "d/bad", Typeflag: tar.TypeLink, Linkname: "d/../.."},
		"an unknown kind":                 {Name: "d/bad", Typeflag: 'Z'},
	} {
		t.Run(why, func(t *testing.T) {
			l := layerOf(tarOf(t, dir("d/"), text("d/a", "1"), h))
			if err := applyLayer(t, s, l); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), h.Name) {
				t.Errorf("%v, want a refusal of %q", err, h.Name)
			}
			if _, err := s.layer(l.Chain); !errdefs.IsNotFound(err) {
				t.Errorf("the layer is kept: %v", err)
			}
		})
	}
	most := 1<<32 - 2
	apply(t, s, tarOf(t, tar.Header{Name: "highest", Uid: most, Gid: most}))
}
