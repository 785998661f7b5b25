package state

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

func (w *watched) sync(string) error { return w.call("folder") }

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
	s.put, s.remove, s.flush = w.put, w.remove, w.sync
	return w
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

// The first synced version of a record costs two syncs, of its folder and of it, and each later one
// one; what is only noted costs none. The newest counts for the next server.
func TestVersionsAreLines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "sandboxes")
	s := open(t, dir)
	w := watch(s)
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	w.did(t, "write")
	must(t)(s.Note("aa", named("one")))
	w.did(t, "append")
	is(t, open(t, dir), "aa", "one")
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
	line, err := encode(sandbox("aa"))
	if err != nil {
		t.Fatal(err)
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
		is(t, open(t, dir), "aa", what)
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
	newer := `{"version":2,"record":{"id":"aa","stage":"ready"}}`
	for name, content := range map[string]string{
		"after older lines": string(old) + newer + "\n",
		"alone":             newer + "\n",
		"without its end":   newer,
		"before damage":     string(old) + newer + "\nx\n",
	} {
		if err := os.WriteFile(s.path("aa"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Read(dir, CheckSandbox); err != nil || l.Newer["aa.json"] != 2 || len(l.Records)+len(l.Damaged) != 0 {
			t.Errorf("%s: read %+v, %v", name, l, err)
		}
		_, err := Open(dir, quiet(), CheckSandbox, nil)
		if !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, says := range []string{s.path("aa"), "format 2", "formats up to 1", "start the newer release"} {
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
	p := &platter{t: t, r: rand.New(rand.NewPCG(3, 0)), durable: map[string][]byte{}, nameless: map[string][]byte{}}
	s := open(t, dir)
	s.put, s.remove, s.flush = p.put, p.remove, p.sync
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
	w.did(t, "write, remove, folder, write, remove, folder")
	if err := s.Create("aa", sandbox("aa")); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop("aa"); err != nil {
		t.Fatal(err)
	}
	w.refuse = []string{"folder"}
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
	if l, err := Read(dir, CheckSandbox); err != nil || l.Damaged["aa.json"] == "" {
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
	line, err := encode(sandbox("aa"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "one byte": "{", "half": string(line[:len(line)/2]), "zeros": strings.Repeat("\x00", 9), "half and zeros": string(line[:40]) + strings.Repeat("\x00", 9),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "aa.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Read(dir, CheckSandbox); err != nil || len(l.Unfinished) != 1 || len(l.Damaged)+len(l.Records) != 0 {
			t.Errorf("%s: read %+v, %v", name, l, err)
		}
		if ids := open(t, dir).IDs(); len(ids) != 0 {
			t.Errorf("%s: ids %v", name, ids)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
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
	w.did(t, "remove, remove")
	w.refuse = []string{"folder"}
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
	w.did(t, "folder")
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
	t *testing.T
	r *rand.Rand
	// durable are files and what a power cut leaves at least; nameless have no durable name.
	durable, nameless map[string][]byte
}

func (p *platter) put(path string, data []byte, m durable.Mode) error {
	_, named := p.durable[path]
	if err := durable.Put(path, data, durable.Mode{Append: m.Append}); err != nil {
		return err
	}
	all, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, nameless := p.nameless[path]
	switch {
	case !m.Append && m.Sync:
		p.durable[path] = all
		delete(p.nameless, path)
	case !m.Append && named:
		p.t.Errorf("%s is replaced without a sync", path)
	case !m.Append:
		p.nameless[path] = nil
	case m.Sync && nameless:
		p.nameless[path] = all
	case m.Sync:
		p.durable[path] = all
	}
	return nil
}

func (p *platter) remove(path string) error {
	delete(p.nameless, path)
	return os.Remove(path)
}

func (p *platter) sync(path string) error {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		data, err := os.ReadFile(path)
		if _, nameless := p.nameless[path]; nameless {
			p.nameless[path] = data
		} else {
			p.durable[path] = data
		}
		return err
	}
	maps.Copy(p.durable, p.nameless)
	clear(p.nameless)
	for path := range p.durable {
		if _, err := os.Stat(path); err != nil {
			delete(p.durable, path)
		}
	}
	return nil
}

// cut leaves of the files what a power cut may.
func (p *platter) cut() {
	p.t.Helper()
	for path, least := range p.nameless {
		if p.r.IntN(2) == 0 {
			if err := os.Remove(path); err != nil {
				p.t.Fatal(err)
			}
			continue
		}
		p.durable[path] = least
	}
	for path, least := range p.durable {
		now, err := os.ReadFile(path)
		if err != nil { // removed without a sync
			if p.r.IntN(2) == 0 {
				continue
			}
			now = least
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
		if err := os.WriteFile(path, append(slices.Clone(least), rest...), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

// fate is what may be left of a record.
type fate struct {
	synced, newest     int // versions; synced is -1 if none is
	dropped, forgotten bool
}

// Whatever a power cut takes back: a version that was synced or a newer one is there, what was
// removed for good is not, and nothing that was announced is damaged. The next server goes on.
func TestPowerCutTakesBackOnlyNotes(t *testing.T) {
	for seed := range uint64(500) {
		dir := t.TempDir()
		p := &platter{t: t, r: rand.New(rand.NewPCG(seed, 0)), durable: map[string][]byte{}, nameless: map[string][]byte{}}
		s := open(t, dir)
		s.put, s.remove, s.flush = p.put, p.remove, p.sync
		fates := map[string]*fate{}
		settled := func() {
			for _, f := range fates {
				f.forgotten = f.forgotten || f.dropped
			}
		}
		for i := range 1 + p.r.IntN(30) {
			ids := s.IDs()
			id := fmt.Sprintf("%02d", i)
			if len(ids) == 0 || p.r.IntN(4) == 0 {
				if err := s.Create(id, sandbox(id)); err != nil {
					t.Fatal(err)
				}
				fates[id] = &fate{synced: -1}
				continue
			}
			id = ids[p.r.IntN(len(ids))]
			f := fates[id]
			switch p.r.IntN(8) {
			case 0:
				f.dropped = true
				if err := s.Delete(id); err != nil {
					t.Fatal(err)
				}
				settled()
			case 1:
				f.dropped = true
				if err := s.Drop(id); err != nil {
					t.Fatal(err)
				}
			case 2, 3, 4:
				f.newest++
				must(t)(s.Update(id, named(strconv.Itoa(f.newest))))
				f.synced = f.newest
			default:
				f.newest++
				must(t)(s.Note(id, named(strconv.Itoa(f.newest))))
			}
		}
		p.cut()
		s = open(t, dir)
		for id, f := range fates {
			r, err := s.Get(id)
			version, _ := strconv.Atoi(r.Handler)
			there := err == nil
			_, damaged := os.Stat(s.path(id) + damagedSuffix)
			switch {
			case f.forgotten && there, !f.dropped && f.synced >= 0 && !there, there && (version < f.synced || version > f.newest), f.synced >= 0 && damaged == nil:
				t.Errorf("seed %d: record %s of %+v: there %t, version %d, damaged %t", seed, id, *f, there, version, damaged == nil)
			}
			if there && seed%10 == 0 {
				must(t)(s.Update(id, named("next")))
				is(t, open(t, dir), id, "next")
			}
		}
		if t.Failed() {
			return
		}
	}
}

// A removal that finds the record gone already is answered only after the sync of that removal.
func TestRemovalThatFindsNothingIsSettled(t *testing.T) {
	s := open(t, t.TempDir())
	var synced atomic.Int64 // how many removals a sync of the folder has seen
	var removed atomic.Int64
	s.remove = func(path string) error { err := os.Remove(path); removed.Add(1); return err }
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
