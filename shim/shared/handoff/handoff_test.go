package handoff

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// memory is a supervisor that keeps copies in this process. One that is gone refuses.
type memory struct {
	t    *testing.T
	kept map[string]supervisor.Kept
	life int
	gone bool
}

func (m *memory) err() error {
	if m.gone {
		return fmt.Errorf("supervisor: %w", errdefs.ErrUnavailable)
	}
	return nil
}

func (m *memory) Keep(key string, note []byte, files ...*os.File) error {
	k := supervisor.Kept{Key: key, Note: slices.Clone(note)}
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			m.t.Fatal(err)
		}
		k.Files = append(k.Files, os.NewFile(uintptr(fd), key))
	}
	m.kept[key] = k
	return m.err()
}

func (m *memory) Drop(key string) error {
	maps.DeleteFunc(m.kept, func(kept string, _ supervisor.Kept) bool {
		return kept == key || strings.HasSuffix(key, "/") && strings.HasPrefix(kept, key)
	})
	return m.err()
}

func (m *memory) Left() (all []supervisor.Kept) {
	for _, key := range slices.Sorted(maps.Keys(m.kept)) {
		all = append(all, m.kept[key])
	}
	return all
}

func (m *memory) Life() int        { return m.life }
func (m *memory) Watch(int) error  { return m.err() }
func (m *memory) Forget(int) error { return m.err() }

// shims returns the hand-over of a shim, and that of its successor, which is to be asked later.
func shims(t *testing.T) (first, second *Handoff, m *memory) {
	m = &memory{t: t, kept: map[string]supervisor.Kept{}, life: 1}
	log := slog.New(slog.DiscardHandler)
	return New(m, log), New(m, log), m
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// reaches says whether what is written to w comes out of r, when all ends that the test knows of
// are closed.
func reaches(t *testing.T, w, r *os.File, text string) {
	t.Helper()
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
		t.Errorf("%q came out of %s: %v, want %q", got, r.Name(), err, text)
	}
}

func TestSuccessorGetsFilesAndRecords(t *testing.T) {
	first, second, _ := shims(t)
	in, stdin := pipe(t)
	stdout, out := pipe(t)
	stderr, errs := pipe(t)
	link, far := pipe(t)
	must(t,
		first.Open("a", "/bundles/a"),
		first.KeepStdin("a", stdin),
		first.KeepStreams("a", map[string]*os.File{"stderr": stderr, "stdout": stdout}),
		first.KeepExec("a", "x/1", 17), first.KeepExec("a", "x/2", 18), first.DropExec("a", "x/1"),
		first.Box("a").Keep("link", []byte("note"), link),
		first.Box("a").Keep("other", nil), first.Box("a").Drop("other"),
		first.Open("ab", "/bundles/ab"),
		first.Open("b", "/bundles/b"), first.Close("b"),
	)
	for _, f := range []*os.File{stdin, stdout, stderr, link} { // the shim dies
		f.Close()
	}
	left := second.Remains()
	if len(left) != 2 || left[0].ID != "a" || left[1].ID != "ab" || left[1].Bundle != "/bundles/ab" || len(left[1].Streams) != 0 {
		t.Fatalf("left %+v, want containers a and ab", left)
	}
	a := left[0]
	if a.Version != Version {
		t.Errorf("format version %d, want %d", a.Version, Version)
	}
	if a.Bundle != "/bundles/a" || !slices.Equal(a.Execs, []int{18}) || len(a.Streams) != 3 || len(a.Box) != 1 {
		t.Fatalf("left of a: %+v", a)
	}
	reaches(t, a.Streams[stdio.EndStdin], in, "in")
	reaches(t, out, a.Streams["stdout"], "out")
	reaches(t, errs, a.Streams["stderr"], "err")
	if box := a.Box["link"]; string(box.Note) != "note" || len(box.Files) != 1 {
		t.Errorf("left in the box: %+v", box)
	} else {
		reaches(t, far, box.Files[0], "link")
	}
	a.Close()
	if _, err := a.Box["link"].Files[0].Read(make([]byte, 1)); err == nil {
		t.Error("what nobody took is open")
	}
}

func TestStdinIsKeptByItself(t *testing.T) {
	first, second, _ := shims(t)
	_, stdin := pipe(t)
	stdout, _ := pipe(t)
	must(t, first.Open("a", "/a"), first.KeepStdin("a", stdin), first.KeepStreams("a", map[string]*os.File{"stdout": stdout}), first.DropStdin("a"))
	if left := second.Remains(); len(left) != 1 || left[0].Streams[stdio.EndStdin] != nil || left[0].Streams["stdout"] == nil {
		t.Errorf("left %+v, want the output without the input", left)
	}
}

func TestHistory(t *testing.T) {
	first, second, m := shims(t)
	if h := first.History(); h != (api.History{Shims: 1}) {
		t.Errorf("the first shim has the history %+v", h)
	}
	must(t, first.KeepHistory(api.History{Shims: 1}))
	if len(m.kept) != 0 {
		t.Errorf("kept %v, and nothing has happened", m.kept)
	}
	must(t, first.KeepHistory(api.History{Shims: 2, Adopted: 3, Lost: 1}))
	m.life = 3
	if h := second.History(); h != (api.History{Shims: 3, Adopted: 3, Lost: 1}) {
		t.Errorf("history %+v", h)
	}
	if left := second.Remains(); len(left) != 0 {
		t.Errorf("the history is taken for a container: %+v", left)
	}
	m.kept[keyHistory] = supervisor.Kept{Key: keyHistory, Note: []byte("{")}
	if h := second.History(); h != (api.History{Shims: 3}) {
		t.Errorf("history %+v from a note that cannot be read", h)
	}
}

// Without a supervisor, or with one that is gone, the containers end with the shim: that is no
// error.
func TestWithoutASupervisor(t *testing.T) {
	gone, _, m := shims(t)
	m.gone = true
	r, _ := pipe(t)
	for name, h := range map[string]*Handoff{"none": New(nil, nil), "gone": gone} {
		must(t,
			h.Open("a", "/a"), h.KeepStdin("a", r), h.KeepStreams("a", map[string]*os.File{"x": r}), h.KeepExec("a", "x", 1), h.DropExec("a", "x"),
			h.DropStdin("a"), h.Watch(1), h.Forget(1), h.Box("a").Keep("x", nil, r), h.Box("a").Drop("x"), h.Close("a"),
		)
		if name == "none" && (h.Remains() != nil || h.Box("a") != nil || h.History() != (api.History{})) {
			t.Error("something is left without a supervisor")
		}
	}
}

func TestRemainsOfAnotherFormat(t *testing.T) {
	for note, want := range map[string]Remains{
		"/bundles/a b":   {Bundle: "/bundles/a b"},
		"2 /bundles/a b": {Bundle: "/bundles/a b", Version: 2},
	} {
		var r Remains
		if r.add(keyBundle, supervisor.Kept{Note: []byte(note)}); r.Bundle != want.Bundle || r.Version != want.Version {
			t.Errorf("%q is %+v", note, r)
		}
	}
}
