package wasip2

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const method = "filesystem/types#[method]descriptor."

// at calls a path function with path parameters and says what it returned.
func (g *guest) at(function string, dir uint64, params ...any) string {
	g.Helper()
	list := []uint64{dir}
	for _, p := range params {
		switch p := p.(type) {
		case string:
			at, n := g.put(p)
			list = append(list, at, n)
		case int:
			list = append(list, uint64(p))
		case uint64:
			list = append(list, p)
		}
	}
	g.do(method+function, append(list, out)...)
	payload := uint32(1)
	if function == "stat-at" || function == "metadata-hash-at" {
		payload = 8
	}
	if function == "readlink-at" || function == "read-directory" {
		payload = 4
	}
	return g.result(payload)
}

// TestPaths is what each function says of paths.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "full"), 0o755), os.WriteFile(filepath.Join(dir, "full/file"), []byte("text"), 0o644),
		os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644), os.Mkdir(filepath.Join(dir, "empty"), 0o755),
		os.Symlink("nowhere", filepath.Join(dir, "dangling")), os.Symlink("file", filepath.Join(dir, "link")),
		os.Symlink("../outside", filepath.Join(dir, "full/up")), os.Symlink("loop", filepath.Join(dir, "loop")),
		os.Symlink("\xff", filepath.Join(dir, "odd")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	g, root := files(t, dir, false)
	full, result := g.open(root, "full", 0, openDirectory, descriptorRead)
	if result != "ok" {
		t.Fatal(result)
	}
	file, _ := g.open(root, "file", 0, 0, descriptorRead)
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		function string
		dir      uint64
		params   []any
		want     string
	}{
		{"create-directory-at", root, []any{"new"}, "ok"},
		{"create-directory-at", root, []any{"new"}, "exist"},
		{"create-directory-at", root, []any{"no/new"}, "no-entry"},
		{"create-directory-at", root, []any{"file/new"}, "not-directory"},
		{"create-directory-at", root, []any{""}, "no-entry"},
		{"create-directory-at", root, []any{"/new"}, "not-permitted"},
		{"create-directory-at", root, []any{"../new"}, "not-permitted"},
		{"create-directory-at", root, []any{"a\x00b"}, "invalid"},
		{"create-directory-at", root, []any{long}, "name-too-long"},
		{"create-directory-at", root, []any{long[:300]}, "name-too-long"},
		{"create-directory-at", file, []any{"new"}, "not-directory"},
		{"stat-at", root, []any{0, "dangling"}, "ok"},
		{"stat-at", root, []any{1, "dangling"}, "no-entry"},
		{"stat-at", root, []any{1, "loop"}, "loop"},
		{"stat-at", full, []any{1, "up"}, "not-permitted"},
		{"stat-at", full, []any{0, ".."}, "not-permitted"},
		{"stat-at", file, []any{0, "x"}, "not-directory"},
		{"metadata-hash-at", root, []any{1, "link"}, "ok"},
		{"metadata-hash-at", root, []any{0, "gone"}, "no-entry"},
		{"link-at", root, []any{0, "file", full, "hard"}, "ok"},
		{"link-at", root, []any{0, "file", full, "hard"}, "exist"},
		{"link-at", root, []any{0, "empty", full, "hard2"}, "not-permitted"},
		{"link-at", root, []any{1, "link", root, "hard3"}, "ok"},
		{"link-at", root, []any{0, "gone", root, "hard4"}, "no-entry"},
		{"link-at", root, []any{0, "file", file, "hard5"}, "not-directory"},
		{"readlink-at", root, []any{"dangling"}, "ok"},
		{"readlink-at", root, []any{"file"}, "invalid"},
		{"readlink-at", root, []any{"gone"}, "no-entry"},
		{"readlink-at", root, []any{"odd"}, "illegal-byte-sequence"},
		{"rename-at", root, []any{"file", full, "moved"}, "ok"},
		{"rename-at", root, []any{"gone", full, "moved"}, "no-entry"},
		{"rename-at", full, []any{"moved", root, "file"}, "ok"},
		{"rename-at", root, []any{"file", root, "empty"}, "is-directory"},
		{"rename-at", root, []any{"empty", root, "full"}, "not-empty"},
		{"rename-at", root, []any{"file", full, "../../x"}, "not-permitted"},
		{"rename-at", root, []any{"file", file, "x"}, "not-directory"},
		{"symlink-at", root, []any{"some/where", "sym"}, "ok"},
		{"symlink-at", root, []any{"x", "sym"}, "exist"},
		{"symlink-at", root, []any{"/etc", "sym2"}, "not-permitted"},
		{"symlink-at", file, []any{"x", "sym3"}, "not-directory"},
		{"remove-directory-at", root, []any{"full"}, "not-empty"},
		{"remove-directory-at", root, []any{"file"}, "not-directory"},
		{"remove-directory-at", root, []any{"empty"}, "ok"},
		{"remove-directory-at", root, []any{"empty"}, "no-entry"},
		{"remove-directory-at", file, []any{"x"}, "not-directory"},
		{"unlink-file-at", root, []any{"full"}, "is-directory"},
		{"unlink-file-at", root, []any{"dangling"}, "ok"},
		{"unlink-file-at", root, []any{"dangling"}, "no-entry"},
		{"unlink-file-at", root, []any{"../file"}, "not-permitted"},
		{"unlink-file-at", file, []any{"x"}, "not-directory"},
		{"set-times-at", root, []any{0, "file", 0, 0, 0, 1, 0, 0}, "ok"},
		{"set-times-at", root, []any{1, "gone", 0, 0, 0, 0, 0, 0}, "no-entry"},
		{"set-times-at", root, []any{0, "file", 2, uint64(1) << 63, 0, 0, 0, 0}, "overflow"},
		{"set-times-at", root, []any{0, "file", 2, uint64(1)<<63 - 1, uint64(4e9), 0, 0, 0}, "overflow"},
		{"set-times-at", file, []any{0, "x", 0, 0, 0, 0, 0, 0}, "not-directory"},
		{"read-directory", file, nil, "not-directory"},
	} {
		if got := g.at(c.function, c.dir, c.params...); got != c.want {
			t.Errorf("%s%.60v: %s, want %s", c.function, c.params, got, c.want)
		}
	}
	if got := g.at("readlink-at", root, "sym"); got != "ok" || g.text(out+4) != "some/where" {
		t.Errorf("readlink-at: %s, %q", got, g.text(out+4))
	}
}

// TestOpen is what open-at says, and what its flags allow.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644)
	os.Mkdir(filepath.Join(dir, "dir"), 0o755)
	os.Symlink("file", filepath.Join(dir, "link"))
	os.Symlink("made", filepath.Join(dir, "dangling"))
	g, root := files(t, dir, false)
	const r, w = descriptorRead, descriptorWrite
	for _, c := range []struct {
		path            string
		follow, how     uint32
		flags           descriptorFlags
		want, type_     string
		reported        descriptorFlags
		readable, write string
	}{
		{"file", 0, 0, r, "ok", "regular-file", r, "ok", "bad-descriptor"},
		{"file", 0, 0, w, "ok", "regular-file", w, "bad-descriptor", "ok"},
		{"file", 0, 0, r | w, "ok", "regular-file", r | w, "ok", "ok"},
		{"file", 0, 0, 0, "ok", "regular-file", r, "ok", "bad-descriptor"},
		{"file", 0, 0, r | w | descriptorFileSync | descriptorMutate, "ok", "regular-file", r | w | descriptorFileSync, "ok", "ok"},
		{"file", 0, 0, r | w | descriptorDataSync, "ok", "regular-file", r | w | descriptorDataSync, "ok", "ok"},
		{"dir", 0, openDirectory, r, "ok", "directory", r | descriptorMutate, "bad-descriptor", "bad-descriptor"},
		{"dir", 0, 0, 0, "ok", "directory", r | descriptorMutate, "bad-descriptor", "bad-descriptor"},
		{"dir", 0, 0, w, "is-directory", "", 0, "", ""},
		{"file", 0, openDirectory, r, "not-directory", "", 0, "", ""},
		{"new", 0, openDirectory | openCreate, r, "invalid", "", 0, "", ""},
		{"new", 0, 0, r, "no-entry", "", 0, "", ""},
		{"new", 0, openCreate, r | w, "ok", "regular-file", r | w, "ok", "ok"},
		{"new", 0, openCreate | openExclusive, w, "exist", "", 0, "", ""},
		{"new", 0, openExclusive, r, "ok", "regular-file", r, "ok", "bad-descriptor"},
		{"link", 0, 0, r, "loop", "", 0, "", ""},
		{"link", 1, 0, r, "ok", "regular-file", r, "ok", "bad-descriptor"},
		{"dangling", 1, 0, r, "no-entry", "", 0, "", ""},
		{"dangling", 1, openCreate, w, "ok", "regular-file", w, "bad-descriptor", "ok"},
		{"dir/", 0, 0, r, "ok", "directory", r | descriptorMutate, "bad-descriptor", "bad-descriptor"},
		{"file/", 0, 0, r, "not-directory", "", 0, "", ""},
		{"../x", 0, openCreate, w, "not-permitted", "", 0, "", ""},
		{"/file", 0, 0, r, "not-permitted", "", 0, "", ""},
		{"", 0, 0, r, "no-entry", "", 0, "", ""},
	} {
		h, got := g.open(root, c.path, c.follow, c.how, c.flags)
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if got != "ok" {
			continue
		}
		g.do(method+"get-flags", h, out)
		if got := descriptorFlags(g.u8(out + 1)); got != c.reported {
			t.Errorf("%+v: flags %b", c, got)
		}
		g.do(method+"get-type", h, out)
		if got := typeNames[g.u8(out+1)]; got != c.type_ {
			t.Errorf("%+v: type %s", c, got)
		}
		g.do(method+"read", h, 10, 0, out)
		if got := g.result(4); got != c.readable {
			t.Errorf("%+v: read %s", c, got)
		}
		at, n := g.put("content")
		g.do(method+"write", h, at, n, 0, out)
		if got := g.result(8); got != c.write {
			t.Errorf("%+v: write %s", c, got)
		}
		g.do("filesystem/types#[resource-drop]descriptor", h)
	}
	if h, got := g.open(root, "file", 0, openTruncate, w); got != "ok" {
		t.Errorf("truncate: %s", got)
	} else if st, err := os.Stat(filepath.Join(dir, "file")); err != nil || st.Size() != 0 {
		t.Errorf("truncate: %v, %v, %d", st, err, h)
	}
	for _, limit := range []uint64{2 << 20} {
		if h, _ := g.open(root, "file", 0, 0, w); true {
			g.do(method+"set-size", h, limit, out)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "file")); err != nil || st.Size() != 2<<20 {
		t.Errorf("set-size: %v, %v", st, err)
	}
}

var typeNames = []string{"unknown", "block-device", "character-device", "directory", "fifo", "symbolic-link", "regular-file", "socket"}

// TestReadOnlyPreopen refuses whatever would change it.
func TestReadOnlyPreopen(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	g, root := files(t, dir, true)
	g.do(method+"get-flags", root, out)
	if got := descriptorFlags(g.u8(out + 1)); got != descriptorRead {
		t.Errorf("flags %b", got)
	}
	for function, params := range map[string][]any{
		"create-directory-at": {"new"}, "unlink-file-at": {"file"}, "remove-directory-at": {"dir"}, "symlink-at": {"x", "y"},
		"rename-at": {"file", root, "x"}, "link-at": {0, "file", root, "x"}, "set-times-at": {0, "file", 1, 0, 0, 1, 0, 0},
		"set-times": {1, 0, 0, 1, 0, 0},
	} {
		if got := g.at(function, root, params...); got != "read-only" {
			t.Errorf("%s: %s", function, got)
		}
	}
	for how, want := range map[uint32]string{0: "read-only", openCreate: "read-only"} {
		if _, got := g.open(root, "file", 0, how, descriptorWrite); got != want {
			t.Errorf("open-at %d: %s", how, got)
		}
	}
	if _, got := g.open(root, "file", 0, 0, descriptorRead); got != "ok" {
		t.Error(got)
	}
}

// TestDescriptorOfAFile reads, writes, and keeps positions apart.
func TestDescriptorOfAFile(t *testing.T) {
	dir := t.TempDir()
	g, root := files(t, dir, false)
	h, _ := g.open(root, "file", 0, openCreate, descriptorRead|descriptorWrite)
	write := func(s string, offset uint64) {
		at, n := g.put(s)
		if g.do(method+"write", h, at, n, offset, out); g.result(8) != "ok" || g.u64(out+8) != n {
			t.Errorf("write: %s, %d", g.result(8), g.u64(out+8))
		}
	}
	read := func(n, offset uint64) (string, bool) {
		if g.do(method+"read", h, n, offset, out); g.result(4) != "ok" {
			t.Errorf("read: %s", g.result(4))
		}
		return g.text(out + 4), g.u8(out+12) == 1
	}
	write("hello, world", 0)
	write("W", 7)
	if got, end := read(100, 7); got != "World" || end {
		t.Errorf("got %q, %t", got, end)
	}
	if got, end := read(100, 12); got != "" || !end {
		t.Errorf("at the end: %q, %t", got, end)
	}
	in := g.stream("read-via-stream", h, 7)
	first, second := g.stream("write-via-stream", h, 0), g.stream("append-via-stream", h)
	g.do("filesystem/types#[resource-drop]descriptor", h) // the streams live on
	for _, result := range []string{
		g.write("write", first, "JE"), g.write("blocking-write-and-flush", second, "!"), g.write("write", first, "LL"),
		g.write("write", second, "?"), g.flow(4, outputMethod+"write-zeroes", second, 2),
	} {
		if result != "ok" {
			t.Error(result)
		}
	}
	if n, result := g.permit(first); n != maxPermit || result != "ok" {
		t.Errorf("check-write: %d, %s", n, result)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(got) != "JELLo, World!?\x00\x00" {
		t.Errorf("got %q, %v", got, err)
	}
	var all []string
	for {
		got, result := g.read("read", in, 4)
		if result != "ok" {
			same(t, "the stream", append(all, result), []string{"Worl", "d!?\x00", "\x00", "closed"})
			break
		}
		all = append(all, got)
	}
	p := g.do(inputMethod+"subscribe", in)
	if g.do("io/poll#[method]pollable.ready", p) != 1 {
		t.Error("a file is not ready")
	}
	h, _ = g.open(root, "file", 0, 0, descriptorRead)
	out1 := g.stream("write-via-stream", h, 0)
	if got := g.write("write", out1, "x"); got != "bad-descriptor" {
		t.Errorf("a stream of a file that is not open for writing: %s", got)
	}
	if got := g.write("write", out1, "x"); got != "closed" {
		t.Errorf("then: %s", got)
	}
	far := g.stream("read-via-stream", h, 1<<63)
	if _, got := g.read("read", far, 1); got != "invalid" {
		t.Errorf("far away: %s", got)
	}
	for _, c := range []struct {
		function string
		handle   uint64
		params   []any
		want     string
	}{
		{"sync", h, nil, "ok"}, {"sync-data", h, nil, "ok"}, {"sync", root, nil, "ok"},
		{"advise", h, []any{0, 0, 5}, "ok"}, {"advise", root, []any{0, 0, 0}, "bad-descriptor"}, {"advise", h, []any{uint64(1) << 63, 0, 0}, "invalid"},
		{"set-size", root, []any{1}, "bad-descriptor"}, {"set-size", h, []any{1}, "invalid"}, {"set-size", h, []any{uint64(1) << 63}, "invalid"},
		{"set-times", h, []any{2, 5, 6, 2, 7, uint64(3e9)}, "ok"},
	} {
		if got := g.at(c.function, c.handle, c.params...); got != c.want {
			t.Errorf("%s%v: %s", c.function, c.params, got)
		}
	}
	if g.do(method+"stat", h, out); g.result(8) != "ok" || g.u8(out+8) != 6 || g.u64(out+16) != 1 || g.u64(out+24) != 16 {
		t.Errorf("stat: %s, %d, %d, %d", g.result(8), g.u8(out+8), g.u64(out+16), g.u64(out+24))
	}
	same(t, "times", []uint64{uint64(g.u8(out + 32)), g.u64(out + 40), uint64(g.u32(out + 48)), g.u64(out + 64), uint64(g.u32(out + 72))},
		[]uint64{1, 5, 6, 10, 0})
	os.Chtimes(filepath.Join(dir, "file"), time.Unix(-1, 0), time.Unix(1, 0))
	if g.do(method+"stat", h, out); g.u8(out+32) != 0 || g.u8(out+56) != 1 {
		t.Error("a time before 1970 is a datetime")
	}
	for function, want := range map[string]string{"read-via-stream": "is-directory", "write-via-stream": "bad-descriptor"} {
		if g.do(method+function, root, 0, out); g.result(4) != want {
			t.Errorf("%s of a directory: %s", function, g.result(4))
		}
	}
	if g.do(method+"append-via-stream", root, out); g.result(4) != "bad-descriptor" {
		t.Error(g.result(4))
	}
}

// TestIdentity tells files apart, whatever they are called and whatever is in them.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	g, root := files(t, dir, false)
	one, _ := g.open(root, "one", 0, openCreate, descriptorWrite)
	two, _ := g.open(root, "two", 0, openCreate, descriptorWrite)
	g.at("link-at", root, 0, "one", root, "again")
	again, _ := g.open(root, "again", 0, 0, descriptorRead)
	same(t, "is-same-object", []uint64{g.do(method+"is-same-object", one, again), g.do(method+"is-same-object", one, two)}, []uint64{1, 0})
	hash := func(name string, params ...any) [2]uint64 {
		if got := g.at(name, root, params...); got != "ok" {
			t.Fatal(got)
		}
		return [2]uint64{g.u64(out + 8), g.u64(out + 16)}
	}
	g.do(method+"metadata-hash", again, out)
	first := [2]uint64{g.u64(out + 8), g.u64(out + 16)}
	at, n := g.put("changed")
	g.do(method+"write", one, at, n, 0, out)
	if first != hash("metadata-hash-at", 0, "one") || first == hash("metadata-hash-at", 0, "two") || first[0] == 0 {
		t.Errorf("hash %x", first)
	}
}

// TestReadDirectory leaves out "." and "..", goes on where it was, and tells types.
func TestReadDirectory(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	os.Mkdir(filepath.Join(dir, "dir"), 0o755)
	os.Symlink("x", filepath.Join(dir, "link"))
	unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644)
	os.WriteFile(filepath.Join(dir, "odd\xff"), nil, 0o644)
	g, root := files(t, dir, false)
	next := func(s uint64) string {
		g.do("filesystem/types#[method]directory-entry-stream.read-directory-entry", s, out)
		switch {
		case g.u8(out) != 0:
			return g.result(4)
		case g.u8(out+4) == 0:
			return "end"
		}
		return typeNames[g.u8(out+8)] + " " + g.text(out+12)
	}
	first, second := g.stream("read-directory", root), g.stream("read-directory", root)
	var one, two []string
	for range 7 {
		one, two = append(one, next(first)), append(two, next(second))
	}
	same(t, "two streams of one directory", one, two)
	slices.Sort(one)
	same(t, "entries", one, []string{"directory dir", "end", "end", "fifo fifo", "illegal-byte-sequence", "regular-file file", "symbolic-link link"})
	g.do("filesystem/types#[resource-drop]descriptor", root)
	if got := next(g.do("filesystem/types#[resource-drop]directory-entry-stream", first) + second); got != "end" {
		t.Error(got)
	}
}

// TestPipesByPath are read and written where they stand.
func TestPipesByPath(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(name, 0o644); err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	g, root := files(t, dir, false)
	h, result := g.open(root, "fifo", 0, 0, descriptorRead|descriptorWrite)
	if result != "ok" {
		t.Fatal(result)
	}
	in, to := g.stream("read-via-stream", h, 5), g.stream("write-via-stream", h, 9)
	if got, result := g.read("read", in, 10); got != "" || result != "ok" {
		t.Errorf("empty: %q, %s", got, result)
	}
	p := g.do(inputMethod+"subscribe", in)
	if g.do("io/poll#[method]pollable.ready", p) != 0 {
		t.Error("an empty pipe is ready")
	}
	for _, s := range []uint64{to, g.stream("append-via-stream", h)} {
		if result := g.write("blocking-write-and-flush", s, "text"); result != "ok" {
			t.Error(result)
		}
	}
	if got, result := g.read("blocking-read", in, 10); got != "texttext" || result != "ok" {
		t.Errorf("got %q, %s", got, result)
	}
	if g.do(method+"get-type", h, out); typeNames[g.u8(out+1)] != "fifo" {
		t.Error(typeNames[g.u8(out+1)])
	}
}

// TestProcfs is not the guest's.
func TestProcfs(t *testing.T) {
	g, root := files(t, "/proc", false)
	if _, got := g.open(root, "self/environ", 0, 0, descriptorRead); got != "access" {
		t.Error(got)
	}
}
