package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// entry is one of an archive.
type entry struct {
	kind       byte
	name, link string
	mode       int64
	text       string
}

func archived(t *testing.T, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Linkname: e.link, Mode: e.mode, Size: int64(len(e.text)), Format: tar.FormatGNU}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// names are all files below a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, name); rel != "." {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return strings.Join(all, " ")
}

func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "was"), []byte("was here, and is longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("was", filepath.Join(dir, "alias")); err != nil {
		t.Fatal(err)
	}
	defer unix.Umask(unix.Umask(0o022))
	var notes []string
	target := Target{Dir: dir, From: "x", As: "y", Limit: 100, Note: func(s string) { notes = append(notes, s) }}
	made, err := Unpack(t.Context(), archived(t,
		entry{kind: tar.TypeDir, name: "./x/", mode: 0o500},
		entry{kind: tar.TypeReg, name: "./x/run", mode: 0o6777, text: "run"},
		entry{kind: tar.TypeReg, name: "./x/deep/er/f", mode: 0o640, text: "f"},
		entry{kind: tar.TypeLink, name: "./x/same", link: "./x/run"},
		entry{kind: tar.TypeLink, name: "./x/run", link: "./x/run"},
		entry{kind: tar.TypeSymlink, name: "./x/link", link: "/etc"},
	), target)
	if err != nil || made != 5 {
		t.Errorf("%d files, %v", made, err)
	}
	if got := names(t, dir); got != "alias was y y/deep y/deep/er y/deep/er/f y/run y/same" {
		t.Errorf("there is %q", got)
	}
	for name, want := range map[string]os.FileMode{"y": 0o700, "y/run": 0o755, "y/deep/er/f": 0o640, "y/deep": 0o755} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want || info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if len(notes) != 1 || notes[0] != `skipping symlink: "./x/link" -> "/etc"` {
		t.Errorf("notes %q", notes)
	}
	// One file, over another and over a link, which is replaced and not followed.
	target.From, target.Plain = "f", true
	for _, as := range []string{"was", "alias"} {
		target.As = as
		if made, err := Unpack(t.Context(), archived(t, entry{kind: tar.TypeReg, name: "f", mode: 0o777, text: "new " + as}), target); err != nil || made != 1 {
			t.Errorf("%s: %d, %v", as, made, err)
		}
	}
	if was, alias := read(t, filepath.Join(dir, "was")), read(t, filepath.Join(dir, "alias")); was != "new was" || alias != "new alias" {
		t.Errorf("%q, %q", was, alias)
	}
	if info, err := os.Lstat(filepath.Join(dir, "alias")); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// All of a folder into another.
	target.From, target.As = ".", "."
	if _, err := Unpack(t.Context(), archived(t, entry{kind: tar.TypeDir, name: "./", mode: 0o755}, entry{kind: tar.TypeReg, name: "./z", mode: 0o600}), target); err != nil {
		t.Error(err)
	}
	if made, err := Unpack(t.Context(), archived(t), target); err != nil || made != 0 {
		t.Errorf("of nothing: %d, %v", made, err)
	}
}

// What a stranger sends changes nothing outside of the target, and no more than it may inside.
func TestUnpackRefuses(t *testing.T) {
	long := strings.Repeat("n", 200)
	for name, tt := range map[string]struct {
		entries []entry
		class   error
		text    string
		left    string // what is in the target afterwards
	}{
		"up":                {[]entry{{kind: tar.TypeReg, name: "x/../../evil", text: "e"}}, errdefs.ErrInvalidArgument, "does not lead into the target", ""},
		"up and back":       {[]entry{{kind: tar.TypeReg, name: "x/../x/evil"}}, errdefs.ErrInvalidArgument, "does not lead into the target", ""},
		"absolute":          {[]entry{{kind: tar.TypeReg, name: "/x/evil"}}, errdefs.ErrInvalidArgument, "does not lead into the target", ""},
		"another name":      {[]entry{{kind: tar.TypeReg, name: "xx/evil"}}, errdefs.ErrInvalidArgument, "does not lead into the target", ""},
		"too deep":          {[]entry{{kind: tar.TypeReg, name: "x" + strings.Repeat("/d", maxDepth)}}, errdefs.ErrInvalidArgument, "does not lead into the target", ""},
		"too long a name":   {[]entry{{kind: tar.TypeReg, name: "x" + strings.Repeat("/"+long, 21)}}, errdefs.ErrInvalidArgument, "does not lead into the target", ""},
		"hard link out":     {[]entry{{kind: tar.TypeLink, name: "x/evil", link: "../outside/secret"}}, errdefs.ErrInvalidArgument, "does not lead into the target", ""},
		"hard link to none": {[]entry{{kind: tar.TypeLink, name: "x/evil", link: "x/none"}}, errdefs.ErrInvalidArgument, "is not a file of the archive", ""},
		"its own link":      {[]entry{{kind: tar.TypeSymlink, name: "x/s", link: "../outside"}, {kind: tar.TypeReg, name: "x/s/evil"}}, nil, "", "x x/s x/s/evil"},
		"pipe, device, socket": {[]entry{
			{kind: tar.TypeFifo, name: "x/p"}, {kind: tar.TypeChar, name: "x/c"}, {kind: tar.TypeBlock, name: "x/b"}, {kind: '7', name: "x/s"}, {kind: tar.TypeReg, name: "x/good", text: "g"},
		}, errdefs.ErrInvalidArgument, `copied: "x/p" is a pipe, "x/c" is a device, "x/b" is a device, "x/s" is of type '7'`, "x x/good"},
		"many pipes":  {[]entry{{kind: '7', name: "x/1"}, {kind: '7', name: "x/2"}, {kind: '7', name: "x/3"}, {kind: '7', name: "x/4"}, {kind: '7', name: "x/5"}, {kind: '7', name: "x/6"}}, errdefs.ErrInvalidArgument, "of type '7' and 1 more", ""},
		"more bytes":  {[]entry{{kind: tar.TypeReg, name: "x/a", text: strings.Repeat("a", 60)}, {kind: tar.TypeReg, name: "x/b", text: strings.Repeat("b", 41)}}, errdefs.ErrResourceExhausted, "more than 100 bytes", "x x/a"},
		"file folder": {[]entry{{kind: tar.TypeReg, name: "x"}, {kind: tar.TypeDir, name: "x"}}, os.ErrExist, `make folder "x"`, "x"},
		"folder file": {[]entry{{kind: tar.TypeDir, name: "x"}, {kind: tar.TypeReg, name: "x"}}, nil, "a folder has that name", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir()
			dir, outside := filepath.Join(at, "target"), filepath.Join(at, "outside")
			for _, d := range []string{dir, outside} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Unpack(t.Context(), archived(t, tt.entries...), Target{Dir: dir, From: "x", As: "x", Limit: 100, Note: func(string) {}})
			if tt.text == "" && err != nil || tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text)) || tt.class != nil && !errors.Is(err, tt.class) {
				t.Errorf("error %v, want %q", err, tt.text)
			}
			if got := names(t, dir); got != tt.left {
				t.Errorf("the target has %q, want %q", got, tt.left)
			}
			if got := names(t, at); strings.Contains(got, "evil") != strings.Contains(tt.left, "evil") || read(t, filepath.Join(outside, "secret")) != "s" {
				t.Errorf("outside is %q", got)
			}
		})
	}
}

// Links and pipes that stand in the target already do not lead out, nor hold anybody.
func TestUnpackIntoTraps(t *testing.T) {
	at := t.TempDir()
	dir, outside := filepath.Join(at, "target"), filepath.Join(at, "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"absolute": outside, "relative": "../outside", "proc": "/proc/self/cwd"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for as, text := range map[string]string{"absolute": "escapes", "relative": "escapes", "proc": "escapes", "pipe": "file exists"} {
		target := Target{Dir: dir, From: "x", As: as, Limit: 100, Note: func(string) {}}
		for _, e := range [][]entry{{{kind: tar.TypeDir, name: "x"}}, {{kind: tar.TypeDir, name: "x"}, {kind: tar.TypeReg, name: "x/evil"}}} {
			if _, err := Unpack(t.Context(), archived(t, e...), target); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", as, err)
			}
		}
	}
	target := Target{Dir: dir, From: "x", As: "pipe", Limit: 100, Note: func(string) {}}
	if _, err := Unpack(t.Context(), archived(t, entry{kind: tar.TypeReg, name: "x", text: "t"}), target); err == nil || !strings.Contains(err.Error(), "neither a file nor a link") {
		t.Errorf("over a pipe: %v", err)
	}
	if got := names(t, outside); got != "" {
		t.Errorf("outside has %q", got)
	}
}

func TestUnpackBrokenArchives(t *testing.T) {
	whole := archived(t, entry{kind: tar.TypeReg, name: "x", text: strings.Repeat("t", 2000)}).Bytes()
	for name, data := range map[string][]byte{"cut": whole[:1500], "no archive": bytes.Repeat([]byte("garbage "), 200), "goes on": append(bytes.Clone(whole), make([]byte, maxRest+1024)...)} {
		dir := t.TempDir()
		if _, err := Unpack(t.Context(), bytes.NewReader(data), Target{Dir: dir, From: "x", As: "x", Limit: 1 << 20, Note: func(string) {}}); err == nil {
			t.Errorf("%s is taken", name)
		}
		if got := names(t, dir); name == "cut" && got != "" {
			t.Errorf("%s: a part of the file stays: %q", name, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Unpack(ctx, bytes.NewReader(whole), Target{Dir: t.TempDir(), From: "x", As: "x", Limit: 1 << 20}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// A tree that is written and unpacked again is the same, except for its links.
func TestWrite(t *testing.T) {
	source := filepath.Join(t.TempDir(), "s")
	deep := filepath.Join(source, strings.Repeat("d", 150), strings.Repeat("e", 150)) // longer than a plain header's names
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{filepath.Join(deep, "f"): "deep", filepath.Join(source, "empty"): ""} {
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(source, "link")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(t.Context(), &b, source, "n"); err != nil {
		t.Fatal(err)
	}
	raw := b.String()
	if !strings.Contains(raw, "/etc/passwd") || strings.Contains(raw, "root:") {
		t.Error("the link is not written as one")
	}
	dir := t.TempDir()
	var notes []string
	if _, err := Unpack(t.Context(), &b, Target{Dir: dir, From: "n", As: "n", Limit: 100, Note: func(s string) { notes = append(notes, s) }}); err != nil || len(notes) != 1 {
		t.Fatalf("%v, %q", err, notes)
	}
	rel, err := filepath.Rel(source, deep)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, "n", rel, "f")); got != "deep" {
		t.Errorf("it has %q", got)
	}
	// One file.
	b.Reset()
	if err := Write(t.Context(), &b, filepath.Join(deep, "f"), "one"); err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(&b).Next()
	if err != nil || header.Name != "one" || header.Mode != 0o640 || header.Uname != "" || !header.AccessTime.IsZero() || !header.ChangeTime.IsZero() || header.Format != tar.FormatGNU {
		t.Errorf("%+v, %v", header, err)
	}
	// What is no file is left out and named.
	if err := unix.Mkfifo(filepath.Join(source, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(source, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Write(t.Context(), io.Discard, source, "n"); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `["pipe" "socket"]`) {
		t.Errorf("error %v", err)
	}
	if err := Write(t.Context(), io.Discard, filepath.Join(source, "pipe"), "n"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a pipe alone: %v", err)
	}
	if err := Write(t.Context(), io.Discard, filepath.Join(source, "none"), "n"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}
