package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
)

// watched is a disk that notes what it is asked for, and may refuse it.
type watched struct {
	calls []string
	// refuse are calls that fail. A line that cannot be added is half there then, with keep.
	refuse []string
	keep   bool
}

func (w *watched) call(name string) error {
	w.calls = append(w.calls, name)
	if slices.Contains(w.refuse, name) {
		return unix.ENOSPC
	}
	return nil
}

func (w *watched) put(path string, data []byte, m durable.Mode) error {
	name := "write"
	if m.Append {
		name = "append"
	}
	if m.Sync {
		name += " synced"
	}
	if err := w.call(name); err != nil {
		if m.Append && w.keep {
			err = errors.Join(err, durable.Put(path, data[:len(data)/2], durable.Mode{Append: true}))
		}
		return err
	}
	return durable.Put(path, data, m)
}

func (w *watched) remove(path string) error {
	if err := w.call("remove"); err != nil {
		return err
	}
	return os.Remove(path)
}

func (w *watched) empty(path string) error {
	if err := w.call("empty"); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

func (w *watched) sync(path string) error {
	if strings.HasSuffix(path, recordSuffix) {
		return w.call("file")
	}
	return w.call("folder")
}

// did compares what the disk was asked for since the last call.
func (w *watched) did(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(w.calls, ", "); got != want {
		t.Errorf("the disk was asked for %q, want %q", got, want)
	}
	w.calls = nil
}

func watch(s *Store[Sandbox]) *watched {
	w := &watched{}
	s.put, s.empty, s.remove, s.flush = w.put, w.empty, w.remove, w.sync
	return w
}

// path is the file of a record, "" without one.
func (s *Store[R]) path(id string) string {
	if e, err := s.entry(id); err == nil {
		return e.file
	}
	return ""
}

// named gives a record a handler, by which its versions are told apart, and makes it a ready one.
func named(name string) func(Sandbox) (Sandbox, error) {
	return func(r Sandbox) (Sandbox, error) { r.Phase, r.Handler = Ready, name; return r, nil }
}

func must(t *testing.T) func(Sandbox, error) {
	return func(_ Sandbox, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// is wants a version of a record in memory.
func is(t *testing.T, s *Store[Sandbox], id, name string) {
	t.Helper()
	if r, err := s.Get(id); err != nil || r.Handler != name {
		t.Errorf("record %s has %q, %v; want %q", id, r.Handler, err, name)
	}
}

// Without an empty file, the first synced version of a record costs two syncs, of its folder and of
// it, and each later one one; what is only noted costs none. The newest counts for the next server.
func TestVersionsAreLines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "sandboxes")
	s := open(t, dir)
	w := watch(s)
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	w.did(t, "append")
	must(t)(s.Note("aa", named("one")))
	w.did(t, "append")
	if l, err := Read(dir, CheckSandbox); err != nil || l.Records["aa"].Handler != "one" {
		t.Errorf("read %+v, %v", l, err)
	}
	must(t)(s.Update("aa", named("two")))
	w.did(t, "folder, append synced")
	must(t)(s.Update("aa", named("three")))
	w.did(t, "append synced")
	must(t)(s.Note("aa", named("four")))
	w.did(t, "append")
	must(t)(s.Amend("aa", named("five")))
	w.did(t, "")
	data, err := os.ReadFile(s.path("aa"))
	if n := bytes.Count(data, []byte("\n")); err != nil || n != 5 || data[len(data)-1] != '\n' {
		t.Errorf("%d lines, %v: %s", n, err, data)
	}
	s = open(t, dir)
	is(t, s, "aa", "four")
	w = watch(s)
	must(t)(s.Update("aa", named("six"))) // whether the server before synced its name is not known
	w.did(t, "folder, append synced")
	if err := os.Remove(s.path("aa")); err != nil {
		t.Fatal(err)
	}
	must(t)(s.Note("aa", named("seven")))
	w.did(t, "append, write synced")
	is(t, open(t, dir), "aa", "seven")
	if err := s.Delete("aa"); err != nil {
		t.Error(err)
	}
	w.did(t, "remove, folder")
}

// The file of an earlier release is one version without a newline; nothing is added to it.
func TestFileOfAnEarlierRelease(t *testing.T) {
	dir := t.TempDir()
	line, err := encode("aa", sandbox("aa"))
	if err != nil {
		t.Fatal(err)
	}
	if line = bytes.Replace(line, []byte(`{"version":2,"id":"aa",`), []byte(`{"version":1,`), 1); bytes.Contains(line, []byte(`"version":2`)) {
		t.Fatalf("%s", line)
	}
	for what, content := range map[string][]byte{"as written": bytes.TrimSpace(line), "edited": bytes.ReplaceAll(line, []byte(","), []byte(",\n"))} {
		if err := os.WriteFile(filepath.Join(dir, "aa.json"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir)
		is(t, s, "aa", "")
		w := watch(s)
		must(t)(s.Note("aa", named("next")))
		w.did(t, "write synced")
		must(t)(s.Update("aa", named(what)))
		w.did(t, "append synced")
		next := open(t, dir)
		is(t, next, "aa", what)
		if err := next.Delete("aa"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "aa.json")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file of one record is kept: %v", err)
		}
	}
}

// What a crash or a power cut leaves of the last line is dropped without a word, and damage to an
// older one is none; only of a whole line that is damaged it is told that an older one is used.
// Nothing is added to a file with such an end.
func TestTornAndDamagedLines(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	must(t)(s.Update("aa", named("one")))
	must(t)(s.Update("aa", named("two")))
	sound, err := os.ReadFile(s.path("aa"))
	if err != nil {
		t.Fatal(err)
	}
	last := sound[bytes.LastIndexByte(sound[:len(sound)-1], '\n')+1:]
	zeros := strings.Repeat("\x00", 20)
	for name, c := range map[string]struct {
		content string
		want    string
		told    bool
		next    string
	}{
		"half a line":     {string(sound) + string(last[:30]), "two", false, "write synced"},
		"nothing of it":   {string(sound) + zeros, "two", false, "write synced"},
		"without its end": {string(sound[:len(sound)-1]), "one", false, "write synced"},
		"its last page":   {string(sound) + zeros + string(last[20:]), "two", true, "write synced"},
		"two of them":     {string(sound) + zeros + "\nx\n" + string(last[:30]), "two", true, "write synced"},
		"the last":        {strings.Replace(string(sound), `"two"`, `"two`, 1), "one", true, "write synced"},
		"one not allowed": {string(sound) + strings.ReplaceAll(string(last), `"ready"`, `"reedy"`), "two", true, "write synced"},
		"the first":       {"x" + string(sound), "two", false, "folder, append synced"},
		"the middle":      {strings.Replace(string(sound), `"one"`, `"one`, 1), "two", false, "folder, append synced"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(s.path("aa"), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := Read(dir, CheckSandbox)
			if err != nil || l.Records["aa"].Handler != c.want || len(l.Damaged)+len(l.Unfinished) != 0 || (l.Older["aa"] != "") != c.told {
				t.Errorf("read %+v, %v", l, err)
			}
			if name == "two of them" && !strings.HasPrefix(l.Older["aa"], "line 5 of 5 is damaged, line 3 is used: ") {
				t.Errorf("of what is used, it says %q", l.Older["aa"])
			}
			var log bytes.Buffer
			next, err := Open(dir, slog.New(slog.NewTextHandler(&log, nil)), CheckSandbox, nil)
			if err != nil {
				t.Fatal(err)
			}
			is(t, next, "aa", c.want)
			if told := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), s.path("aa")); told != c.told || !told && log.Len() > 0 {
				t.Errorf("the log has %q", log.String())
			}
			w := watch(next)
			must(t)(next.Update("aa", named("next")))
			w.did(t, c.next)
			is(t, open(t, dir), "aa", "next")
		})
	}
}

// A record of a newer format is refused, also where an older line can be read, and nothing is
// changed: what it says does not hold any more. Who goes back to this release is told what to do.
func TestNewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	must(t)(s.Update("aa", named("old")))
	old, err := os.ReadFile(s.path("aa"))
	if err != nil {
		t.Fatal(err)
	}
	newer := `{"version":3,"record":{"id":"aa","stage":"ready"}}`
	for name, content := range map[string]string{
		"after older lines": string(old) + newer + "\n",
		"alone":             newer + "\n",
		"without its end":   newer,
		"before damage":     string(old) + newer + "\nx\n",
	} {
		if err := os.WriteFile(s.path("aa"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Read(dir, CheckSandbox); err != nil || l.Newer[filepath.Base(s.path("aa"))] != 3 || len(l.Records)+len(l.Damaged) != 0 {
			t.Errorf("%s: read %+v, %v", name, l, err)
		}
		_, err := Open(dir, quiet(), CheckSandbox, nil)
		if !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, says := range []string{s.path("aa"), "format 3", "formats up to 2", "start the newer release"} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v does not say %q", name, err, says)
			}
		}
		if now, err := os.ReadFile(s.path("aa")); err != nil || string(now) != content {
			t.Errorf("%s: the file is %q now, %v", name, now, err)
		}
	}
	if err := os.WriteFile(s.path("aa"), []byte(newer+"\n"+string(old)), 0o600); err != nil {
		t.Fatal(err)
	}
	is(t, open(t, dir), "aa", "old")
}

// What Open finds may be written and not synced, if the server before was killed in between. Sync
// makes it durable, with its name; the names are synced once for all.
func TestWrittenAndNotSyncedBeforeTheKill(t *testing.T) {
	dir := t.TempDir()
	p := newPlatter(t, dir, 3)
	s := open(t, dir)
	p.watch(s)
	for _, id := range []string{"aa", "bb"} {
		if err := s.Create(id, sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	must(t)(s.Update("aa", named("running")))
	s.put = func(path string, data []byte, m durable.Mode) error { m.Sync = false; return p.put(path, data, m) } // killed in the sync
	must(t)(s.Update("aa", named("exited")))
	next := open(t, dir)
	syncs := 0
	next.flush = func(path string) error { syncs++; return p.sync(path) }
	for range 2 {
		for _, id := range []string{"aa", "bb"} {
			if err := next.Sync(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if syncs != 5 {
		t.Errorf("%d syncs; want one of the folder, and one of a file for each call", syncs)
	}
	for id, want := range map[string]string{"aa": "exited", "bb": ""} {
		is(t, next, id, want)
		if now, err := os.ReadFile(next.path(id)); err != nil || !bytes.Equal(p.durable[next.path(id)], now) {
			t.Errorf("record %s is not durable: %v", id, err)
		}
	}
	if err := next.Sync("cc"); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
	next.flush = func(string) error { return unix.EIO }
	if err := next.Sync("aa"); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
}

// A record whose id was dropped and is used again: the follower learns of the end of the old one
// before the new one.
func TestIDUsedAgainBeforeSettle(t *testing.T) {
	var told []string
	s, err := Open(t.TempDir(), quiet(), CheckSandbox, func(before, after *Sandbox) {
		switch {
		case after == nil:
			told = append(told, "end")
		case before == nil:
			told = append(told, "new")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w := watch(s)
	for range 2 {
		if err := s.Create("aa", sandbox("aa")); err != nil {
			t.Fatal(err)
		}
		if err := s.Drop("aa"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Settle(); err != nil || !slices.Equal(told, []string{"new", "end", "new", "end"}) {
		t.Errorf("%v, told %v", err, told)
	}
	w.did(t, "append, remove, folder, append, empty, file")
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop("aa"); err != nil {
		t.Fatal(err)
	}
	w.refuse = []string{"file"}
	if err := s.Create("aa", sandbox("aa")); !durable.Full(err) || len(s.IDs()) != 0 {
		t.Errorf("%v, ids %v", err, s.IDs())
	}
}

// A record of which only the version of an unfinished one can be read is damaged: to undo it would
// delete what may be in use, and leave no trace of why.
func TestOnlyTheIntentIsLeft(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	intent, err := os.ReadFile(s.path("aa"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("aa"), append(intent, "{\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Read(dir, CheckSandbox); err != nil || l.Damaged[filepath.Base(s.path("aa"))] == "" {
		t.Errorf("read %+v, %v", l, err)
	}
	if ids := open(t, dir).IDs(); len(ids) != 0 {
		t.Errorf("ids %v", ids)
	}
	if _, err := os.Stat(s.path("aa") + damagedSuffix); err != nil {
		t.Error(err)
	}
	if !(Container{Phase: Creating}).Unfinished() || (Container{Phase: Created}).Unfinished() {
		t.Error("which containers are unfinished")
	}
}

// A record whose first write was cut short was told to nobody: its file is removed, and is no
// damaged one.
func TestUnfinishedFile(t *testing.T) {
	line, err := encode("aa", sandbox("aa"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "one byte": "{", "half": string(line[:len(line)/2]), "zeros": strings.Repeat("\x00", 9), "half and zeros": string(line[:40]) + strings.Repeat("\x00", 9),
	} {
		for _, file := range []string{"aa.json", "record-7.json"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			unfinished := 1
			if content == "" && file != "aa.json" { // it waits for a record
				unfinished = 0
			}
			if l, err := Read(dir, CheckSandbox); err != nil || len(l.Unfinished) != unfinished || len(l.Damaged)+len(l.Records) != 0 {
				t.Errorf("%s, %s: read %+v, %v", file, name, l, err)
			}
			var log bytes.Buffer
			s, err := Open(dir, slog.New(slog.NewTextHandler(&log, nil)), CheckSandbox, nil)
			if err != nil || len(s.IDs()) != 0 || strings.Count(log.String(), "\n") != unfinished {
				t.Errorf("%s, %s: %v, ids %v, the log has %q", file, name, err, s.IDs(), log.String())
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("%s, %s: left %v, %v", file, name, left, err)
			}
		}
	}
}

// After a write that failed, memory and file have the version before, and the next write replaces
// the file, also if that one failed too. What is there can be removed meanwhile.
func TestWritesThatFail(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, refuse := range []string{"append synced", "append", "folder", "write synced"} {
			dir := t.TempDir()
			s := open(t, dir)
			w := watch(s)
			if err := s.Create("aa", sandbox("aa")); err != nil {
				t.Fatal(err)
			}
			must(t)(s.Note("aa", named("before")))
			change := s.Update
			switch refuse {
			case "append":
				change = s.Note
			case "write synced":
				s.entries["aa"].size = 0
			}
			w.refuse, w.keep = []string{refuse}, keep
			for range 2 {
				if _, err := change("aa", named("lost")); !durable.Full(err) {
					t.Errorf("%s refused: %v", refuse, err)
				}
				is(t, s, "aa", "before")
				is(t, open(t, dir), "aa", "before")
				w.refuse = []string{refuse, "write synced"}
			}
			w.refuse, w.calls = nil, nil
			must(t)(s.Note("aa", named("after")))
			w.did(t, "write synced")
			is(t, open(t, dir), "aa", "after")
			must(t)(s.Update("aa", named("more")))
			w.did(t, "append synced")
			w.refuse = []string{"append", "append synced", "write", "write synced"}
			if err := s.Create("bb", sandbox("bb")); !durable.Full(err) || len(s.IDs()) != 1 {
				t.Errorf("%v, ids %v", err, s.IDs())
			}
			if err := s.Delete("aa"); err != nil || len(open(t, dir).IDs()) != 0 {
				t.Error(err)
			}
		}
	}
}

// A file that has grown is replaced by its newest line; one of long lines may grow further.
func TestGrownFile(t *testing.T) {
	for length, most := range map[int]int{100: maxFile, maxFile: 5 * maxFile, maxLines: maxLines + maxFile} {
		s := open(t, t.TempDir())
		if err := s.Create("aa", sandbox("aa")); err != nil {
			t.Fatal(err)
		}
		w := watch(s)
		greatest := int64(0)
		for i := range 3*most/length + 3 {
			must(t)(s.Note("aa", named(strconv.Itoa(i)+strings.Repeat("x", length))))
			info, err := os.Stat(s.path("aa"))
			if err != nil || info.Size() != int64(s.entries["aa"].size) {
				t.Fatalf("%v, %v", info, err)
			}
			greatest = max(greatest, info.Size())
		}
		replaced := 0
		for _, c := range w.calls {
			if c == "write synced" {
				replaced++
			}
		}
		if greatest > int64(most) || length < maxLines && int(greatest) < most*3/5 || replaced < 2 {
			t.Errorf("lines of %d: grew to %d, replaced %d times", length, greatest, replaced)
		}
	}
}

// Files that are made for later records are free only once their names are durable.
func TestNewFilesWaitForTheirFolder(t *testing.T) {
	s := open(t, t.TempDir())
	w := watch(s)
	w.refuse = []string{"folder"}
	if err := s.Settle(); err == nil {
		t.Fatal("a folder that cannot be synced is no error")
	}
	w.refuse, w.calls = nil, nil
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	must(t)(s.Update("aa", named("one")))
	w.did(t, "append, folder, append synced")
}

// What was dropped is told once it is durable, by whichever call makes it so, and no removal is
// answered before: also not that of a record which a server before has removed.
func TestDropAndSettle(t *testing.T) {
	dir := t.TempDir()
	var told []string
	s, err := Open(dir, quiet(), CheckSandbox, func(before, after *Sandbox) {
		if after == nil {
			told = append(told, before.ID)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w := watch(s)
	for _, want := range []string{"folder", ""} { // the second has nothing to do
		if err := s.Delete("gone"); err != nil {
			t.Fatal(err)
		}
		w.did(t, want)
	}
	for _, id := range []string{"aa", "bb", "cc"} {
		if err := s.Create(id, sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	w.calls = nil
	if err := errors.Join(s.Drop("aa"), s.Drop("bb"), s.Drop("bb")); err != nil || len(told) != 0 {
		t.Fatalf("%v, told %v", err, told)
	}
	w.did(t, "empty, empty")
	w.refuse = []string{"file"}
	for range 2 {
		if err := s.Delete("aa"); err == nil || len(told) != 0 || len(s.IDs()) != 1 {
			t.Errorf("%v, told %v, ids %v", err, told, s.IDs())
		}
	}
	if err := s.Delete("cc"); err == nil || len(told) != 0 {
		t.Errorf("%v, told %v", err, told)
	}
	w.refuse, w.calls = nil, nil
	if err := s.Delete("aa"); err != nil || !slices.Equal(told, []string{"aa", "bb", "cc"}) {
		t.Errorf("%v, told %v", err, told)
	}
	w.did(t, "file, file, file")
	if err := s.Settle(); err != nil {
		t.Error(err)
	}
	w.did(t, "")
}

// No list, and no other record, waits for a disk that syncs.
func TestListsDoNotWait(t *testing.T) {
	s := open(t, t.TempDir())
	for _, id := range []string{"aa", "bb", "cc"} {
		if err := s.Create(id, sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	s.entries["aa"].named = true
	entered, leave := make(chan struct{}), make(chan struct{})
	s.put = func(path string, data []byte, m durable.Mode) error {
		if m.Sync {
			entered <- struct{}{}
			<-leave
		}
		return durable.Put(path, data, m)
	}
	s.flush = func(path string) error {
		entered <- struct{}{}
		<-leave
		return durable.Sync(path)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Update("aa", named("one")); err != nil {
			t.Error(err)
		}
	})
	<-entered
	wg.Go(func() {
		if err := s.Delete("bb"); err != nil {
			t.Error(err)
		}
	})
	<-entered
	is(t, s, "aa", "")
	if all := s.List(); len(all) != 2 {
		t.Errorf("%d records", len(all))
	}
	if err := s.Create("dd", sandbox("dd")); err != nil {
		t.Error(err)
	}
	must(t)(s.Amend("cc", named("two")))
	if id, err := s.Resolve("d"); id != "dd" || err != nil {
		t.Error(id, err)
	}
	close(leave)
	wg.Wait()
	is(t, s, "aa", "one")
}

// platter is a disk with a cache: what was not synced may be lost, in part too.
type platter struct {
	t   *testing.T
	r   *rand.Rand
	dir string
	// durable are files and what a power cut leaves at least; nameless have no durable name.
	durable, nameless map[string][]byte
	emptied           map[string]bool // since what is durable of them
	left              int             // calls until the power fails; below 0 never
}

func newPlatter(t *testing.T, dir string, seed uint64) *platter {
	return &platter{
		t: t, r: rand.New(rand.NewPCG(seed, 0)), dir: dir, durable: map[string][]byte{}, nameless: map[string][]byte{}, emptied: map[string]bool{}, left: -1,
	}
}

func (p *platter) watch(s *Store[Sandbox]) {
	s.put, s.empty, s.remove, s.flush = p.put, p.empty, p.remove, p.sync
}

// off says that the power has failed. Half of the calls at that moment have reached the disk.
func (p *platter) off() (off, done bool) {
	if p.left != 0 {
		p.left--
		return false, true
	}
	return true, p.r.IntN(2) == 0
}

func (p *platter) put(path string, data []byte, m durable.Mode) error {
	if off, done := p.off(); off {
		if m.Append && done {
			_ = durable.Put(path, data[:p.r.IntN(len(data)+1)], durable.Mode{Append: true})
		}
		return unix.EIO
	}
	_, named := p.durable[path]
	if err := durable.Put(path, data, durable.Mode{Append: m.Append}); err != nil {
		return err
	}
	all, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	switch {
	case !m.Append && !m.Sync:
		p.t.Errorf("%s is replaced without a sync", path)
	case !m.Append:
		p.durable[path] = all
		delete(p.nameless, path)
		delete(p.emptied, path)
	case !named && m.Sync:
		p.nameless[path] = all
	case !named:
		if _, known := p.nameless[path]; !known {
			p.nameless[path] = nil
		}
	case m.Sync:
		p.durable[path] = all
		delete(p.emptied, path)
	}
	return nil
}

func (p *platter) empty(path string) error {
	if off, _ := p.off(); off {
		return unix.EIO
	}
	p.emptied[path] = true
	return os.Truncate(path, 0)
}

func (p *platter) remove(path string) error {
	if off, _ := p.off(); off {
		return unix.EIO
	}
	delete(p.nameless, path)
	return os.Remove(path)
}

func (p *platter) sync(path string) error {
	off, done := p.off()
	if !done {
		return unix.EIO
	}
	if path == p.dir {
		names, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		there := map[string][]byte{}
		for _, n := range names {
			file := filepath.Join(path, n.Name())
			if there[file] = p.nameless[file]; p.durable[file] != nil {
				there[file] = p.durable[file]
			}
		}
		p.durable = there
		clear(p.nameless)
	} else {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, named := p.durable[path]; named {
			p.durable[path] = data
			delete(p.emptied, path)
		} else {
			p.nameless[path] = data
		}
	}
	if off {
		return unix.EIO
	}
	return nil
}

// cut leaves of the files what a power cut may, and gives the power back.
func (p *platter) cut() {
	p.t.Helper()
	names, err := os.ReadDir(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, n := range names {
		path := filepath.Join(p.dir, n.Name())
		if _, named := p.durable[path]; named {
			continue
		}
		if p.r.IntN(2) == 0 {
			if err := os.Remove(path); err != nil {
				p.t.Fatal(err)
			}
			continue
		}
		p.durable[path] = p.nameless[path]
	}
	for path, least := range p.durable {
		now, err := os.ReadFile(path)
		switch {
		case err != nil && p.r.IntN(2) == 0: // it is deleted, without a sync
			delete(p.durable, path)
			continue
		case err != nil, p.emptied[path] && p.r.IntN(2) == 0:
			now = least
		case p.emptied[path]:
			least = nil
		}
		rest := slices.Clone(now[len(least):])
		if len(rest) > 0 {
			switch at := p.r.IntN(len(rest) + 1); p.r.IntN(4) {
			case 0: // the length is there, and the data is not
				clear(rest[at:])
			case 1: // a page of it is not
				clear(rest[at:min(len(rest), at+50)])
			case 2:
				rest = rest[:at]
			}
		}
		p.durable[path] = append(slices.Clone(least), rest...)
		if err := os.WriteFile(path, p.durable[path], 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	clear(p.nameless)
	clear(p.emptied)
	p.left = -1
}

// fate is what may be left of a record.
type fate struct {
	first    int // the version of the last Create
	synced   int // the newest version that was synced, -1 if none is
	newest   int
	dropped  bool
	told     bool // that it is removed
	harmless bool // it may come back all the same; see Tell
	before   bool // it was removed by a server before, which was killed
}

// life is a store on a platter, with what it has announced.
type life struct {
	*platter
	s     *Store[Sandbox]
	fates map[string]*fate
}

func (l *life) open() {
	s, err := Open(l.dir, quiet(), CheckSandbox, func(before, after *Sandbox) {
		if after == nil {
			l.fates[before.ID].told = true
		}
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.watch(s)
	l.s = s
}

// step does something at random, and says whether the disk took it.
func (l *life) step() bool {
	ids, id := l.s.IDs(), fmt.Sprintf("%02d", l.r.IntN(40))
	f := l.fates[id]
	if f == nil {
		f = &fate{synced: -1, newest: -1}
		l.fates[id] = f
	}
	if len(ids) > 0 && (l.r.IntN(3) > 0 || f.harmless) {
		id = ids[l.r.IntN(len(ids))]
		f = l.fates[id]
	} else if f.harmless || slices.Contains(ids, id) {
		return true
	}
	drop := func(remove func(string) error) error {
		f.dropped = true
		return remove(id)
	}
	change := func(change func(string, func(Sandbox) (Sandbox, error)) (Sandbox, error)) error {
		f.newest++
		_, err := change(id, named(strconv.Itoa(f.newest)))
		return err
	}
	var err error
	switch k := l.r.IntN(9); {
	case !slices.Contains(ids, id):
		f.newest++
		if f.before {
			err = l.s.Settle()
		}
		if err != nil {
			break
		}
		if err = l.s.Create(id, Sandbox{ID: id, Handler: strconv.Itoa(f.newest), Phase: Creating, Config: sandbox(id).Config}); err == nil || f.told {
			*f = fate{first: f.newest, synced: -1, newest: f.newest, dropped: err != nil}
		}
	case k == 0:
		if err = drop(l.s.Delete); err == nil && !f.told {
			l.t.Errorf("record %s is removed, and its follower does not know", id)
		}
	case k == 1:
		err = drop(l.s.Drop)
	case k == 2: // as that of a pod's containers
		if err = drop(l.s.Drop); err == nil {
			f.harmless = true
			l.s.Tell(func(r *Sandbox) bool { return r.ID == id })
		}
	case k == 3:
		err = l.s.Settle()
	case k < 7:
		if err = change(l.s.Update); err == nil {
			f.synced = f.newest
		}
	default:
		err = change(l.s.Note)
	}
	return err == nil
}

// judge compares what the next server finds with what was announced.
func (l *life) judge(cut bool) {
	damaged, _ := filepath.Glob(filepath.Join(l.dir, "*"+damagedSuffix))
	for id, f := range l.fates {
		r, err := l.s.Get(id)
		there := err == nil
		version, verr := strconv.Atoi(r.Handler)
		switch {
		case there && (verr != nil || version < f.first || version > f.newest):
			l.t.Errorf("record %s of %+v has version %q", id, *f, r.Handler)
		case there && f.told && !f.harmless, there && f.dropped && !cut:
			l.t.Errorf("record %s of %+v is back", id, *f)
		case there && version < f.synced, there && version < f.newest && !cut:
			l.t.Errorf("record %s of %+v has version %d only", id, *f, version)
		case !there && !f.dropped && (f.synced >= 0 || !cut && f.newest >= 0):
			l.t.Errorf("record %s of %+v is lost, damaged are %v", id, *f, damaged)
		}
		if there { // from now on it is durable, or was noted
			f.dropped, f.told = false, false
			if f.newest = version; cut && !r.Unfinished() {
				f.synced = version
			}
		} else {
			f.dropped, f.told, f.before = true, f.told || cut, !f.told && !cut && f.newest >= 0
		}
	}
}

// Whatever a power cut takes back, also one in the middle of a call: a version that was synced or a
// newer one is there, what was removed for good is not, and nothing that was announced is damaged.
// A server that is killed takes nothing back. The next one continues.
func TestPowerCutTakesBackOnlyNotes(t *testing.T) {
	for seed := range uint64(200) {
		dir := t.TempDir()
		l := &life{platter: newPlatter(t, dir, seed), fates: map[string]*fate{}}
		l.open()
		for round := range 4 {
			cut := l.r.IntN(3) > 0
			if cut {
				l.left = l.r.IntN(120)
			}
			steps := l.r.IntN(120)
			for steps > 0 && l.step() {
				steps--
			}
			if files, _ := filepath.Glob(filepath.Join(dir, recordPrefix+"*"+recordSuffix)); steps == 0 && len(files) > len(l.s.IDs())+maxFree {
				t.Errorf("%d files for %d records", len(files), len(l.s.IDs()))
			}
			if cut {
				l.cut()
			}
			l.open()
			l.judge(cut)
			if t.Failed() {
				t.Fatalf("seed %d, round %d", seed, round)
			}
		}
	}
}

// A removal that finds the record gone already is answered only after the sync of that removal.
func TestRemovalThatFindsNothingIsSettled(t *testing.T) {
	s := open(t, t.TempDir())
	var synced atomic.Int64 // how many removals a sync of the folder has seen
	var removed atomic.Int64
	s.remove = func(path string) error { err := os.Remove(path); removed.Add(1); return err }
	s.empty = func(path string) error { err := os.Truncate(path, 0); removed.Add(1); return err }
	s.flush = func(string) error { synced.Store(removed.Load()); return nil }
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if err := s.Create("aa", sandbox("aa")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.Delete("aa") }()
		for {
			if _, err := s.Get("aa"); errdefs.IsNotFound(err) {
				break
			}
		}
		// as container.Manager.Remove and sandbox.Manager.Remove do for a record that is not there
		if err := s.Settle(); err != nil {
			t.Fatal(err)
		}
		if n := synced.Load(); n != int64(i+1) {
			t.Errorf("round %d: answered, and %d removals are on disk", i, n)
			<-done
			return
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// A sector that has the end of a synced version is written again when the next version is only
// noted; a drive that loses what it was writing takes the synced one with it.
func TestNoteSharesASectorWithASyncedVersion(t *testing.T) {
	for what, zero := range map[string]func(data []byte, from int){
		"the sector":              func(data []byte, from int) { clear(data[from : from+512]) },
		"all that was not synced": func(data []byte, from int) { clear(data[from:]) },
	} {
		dir := t.TempDir()
		s := open(t, dir)
		if err := s.Create("aa", sandbox("aa")); err != nil {
			t.Fatal(err)
		}
		must(t)(s.Update("aa", named("synced"+strings.Repeat("x", 300))))
		synced := s.entries["aa"].size
		must(t)(s.Note("aa", named("noted"+strings.Repeat("x", 1500))))
		data, err := os.ReadFile(s.path("aa"))
		if err != nil {
			t.Fatal(err)
		}
		zero(data, synced/512*512)
		if err := os.WriteFile(s.path("aa"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		next := open(t, dir)
		r, err := next.Get("aa")
		_, damaged := os.Stat(s.path("aa") + damagedSuffix)
		if err != nil || r.Phase != Ready {
			t.Errorf("%s: a ready sandbox, which was synced, is %q, %v; put aside: %t", what, r.Phase, err, damaged == nil)
		}
	}
}

// A file whose content is lost was announced, perhaps: that it is gone is at least in the log.
func TestLostContentIsTold(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	must(t)(s.Update("aa", named("announced")))
	info, err := os.Stat(s.path("aa"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("aa"), make([]byte, info.Size()), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if _, err := Open(dir, slog.New(slog.NewTextHandler(&log, nil)), CheckSandbox, nil); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) == 0 && log.Len() == 0 {
		t.Errorf("the record of a ready sandbox is deleted, and the log has nothing")
	}
}

// What is dropped while a sync runs is not told, nor answered, before another one.
func TestDropDuringASync(t *testing.T) {
	dir := t.TempDir()
	var told atomic.Int64
	s, err := Open(dir, quiet(), CheckSandbox, func(_, after *Sandbox) {
		if after == nil {
			told.Add(1)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"aa", "bb"} {
		if err := s.Create(id, sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	entered, leave := make(chan struct{}), make(chan error)
	s.flush = func(string) error { entered <- struct{}{}; return <-leave }
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.Delete("aa") }()
	<-entered
	if err := s.Drop("bb"); err != nil {
		t.Fatal(err)
	}
	go func() { second <- s.Settle() }()
	leave <- nil
	if err := <-first; err != nil || told.Load() != 1 {
		t.Errorf("%v, told %d", err, told.Load())
	}
	select {
	case <-entered:
		leave <- nil
	case err := <-second:
		t.Fatalf("answered without a sync: %v", err)
	}
	if err := <-second; err != nil || told.Load() != 2 {
		t.Errorf("%v, told %d", err, told.Load())
	}
}
