package unpack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/archive"

	"github.com/sunaba-project/sunaba/images/unpack/extract"
	"github.com/sunaba-project/sunaba/images/unpack/fingerprint"
)

// What a layer unpacks to is what containerd makes of it.
func TestUnpackedAsByContainerd(t *testing.T) {
	compared := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		entries := randomEntries(r)
		data := tarOf(t, entries...)
		top := t.TempDir()
		own, other := filepath.Join(top, "own"), filepath.Join(top, "other")
		for _, dir := range []string{own, other} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := archive.Apply(t.Context(), other, bytes.NewReader(data), archive.WithConvertWhiteout(archive.OverlayConvertWhiteout)); err != nil {
			continue // such as a whiteout of what the layer has
		}
		compared++
		l := layerOf(data)
		l.Parent = "sha256:below"
		x := extract.Extractor{MaxBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)}
		if _, _, err := x.Extract(t.Context(), l, own); err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		times := !replacesDirectory(entries)
		if got, want := listing(t, own, times), listing(t, other, times); got != want {
			t.Errorf("seed %d:\n%s\nwant, as by containerd,\n%s", seed, got, want)
		}
	}
	if compared < 100 {
		t.Errorf("only %d archives were compared", compared)
	}
}

// randomEntries are entries that are much in each other's way.
func randomEntries(r *rand.Rand) []tar.Header {
	names := []string{"a", "b", "c", "a/a", "a/b", "b/a", "a/b/c", "c/a", "./b/c", "a/../c", "x/y/z"}
	var out []tar.Header
	for range 2 + r.IntN(7) {
		h := tar.Header{
			Name: names[r.IntN(len(names))], Mode: []int64{0o644, 0o755, 0o4711, 0o2770, 0o1777, 0o400}[r.IntN(6)],
			Uid: r.IntN(3), Gid: r.IntN(3), ModTime: time.Unix(r.Int64N(1<<31), 0),
		}
		switch r.IntN(9) {
		case 0, 1, 2:
			h.Linkname = strings.Repeat(fmt.Sprint(r.IntN(9)), r.IntN(9))
		case 3, 4:
			h.Typeflag = tar.TypeDir
		case 5:
			h.Typeflag, h.Linkname = tar.TypeSymlink, []string{"/a", "..", "b", "../b/", "/nowhere/at/all", "c"}[r.IntN(6)]
		case 6:
			h.Typeflag, h.Linkname = tar.TypeLink, names[r.IntN(len(names))]
		case 7:
			h.Typeflag, h.Devmajor, h.Devminor = []byte{tar.TypeChar, tar.TypeBlock, tar.TypeFifo}[r.IntN(3)], 1, 3
		case 8:
			h.Name, h.Uid, h.Gid = filepath.Join(filepath.Dir(h.Name), []string{".wh.gone", ".wh..wh..opq"}[r.IntN(2)]), 0, 0
		}
		if h.Typeflag == tar.TypeReg && r.IntN(3) == 0 {
			h.PAXRecords = map[string]string{"SCHILY.xattr.user.k": "v"}
		}
		out = append(out, h)
	}
	return out
}

// replacesDirectory reports whether something takes a directory's place:
// containerd gives it, or what it links to, the directory's time.
func replacesDirectory(entries []tar.Header) bool {
	dirs := map[string]bool{}
	for _, h := range entries {
		name := filepath.Clean(h.Name)
		if h.Typeflag != tar.TypeDir && dirs[name] {
			return true
		}
		dirs[name] = dirs[name] || h.Typeflag == tar.TypeDir
	}
	return false
}

// listing is a directory's fingerprint, name by name, with the times that images
// set if that is wanted.
func listing(t *testing.T, dir string, times bool) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := strings.TrimPrefix(path, dir)
		print, err := fingerprint.OfDirectory(name, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		modified := info.ModTime()
		if !times || time.Since(modified) < time.Hour {
			modified = time.Time{} // nobody has said
		}
		fmt.Fprintf(&out, "%s %s %d %s\n", name, info.Mode(), modified.Unix(), print.String()[:8])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
