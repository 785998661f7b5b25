package state

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/host/durable"
)

// What holds in memory because the disk has refused it is written once the disk takes it, in its
// newest version, by the next change or by itself. Nobody waits for a record that was removed.
func TestInsist(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	s.logger = slog.New(slog.DiscardHandler)
	w := watch(s)
	for _, id := range []string{"aa", "bb", "cc"} {
		if err := s.Create(id, sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	insist := func(id, name string) (<-chan struct{}, error) {
		t.Helper()
		written, refused, err := s.Insist(id, true, named(name))
		if err != nil {
			t.Fatal(err)
		}
		is(t, s, id, name)
		return written, refused
	}
	if written, refused := insist("aa", "first"); written != nil || refused != nil {
		t.Errorf("a disk that takes it: %v, %v", written, refused)
	}
	w.refuse = []string{"append synced", "write synced"}
	a, refused := insist("aa", "lost")
	if a == nil || !durable.Full(refused) {
		t.Fatalf("a full disk: %v, %v", a, refused)
	}
	is(t, open(t, dir), "aa", "first")
	b, _ := insist("bb", "one")
	c, _ := insist("cc", "one")
	must(t)(s.Amend("aa", named("newest")))
	if again, _ := insist("bb", "two"); again != b {
		t.Error("one record is waited for twice")
	}
	if err := s.Delete("cc"); err != nil {
		t.Fatal(err)
	}
	<-c
	select {
	case <-a:
		t.Error("it is written, says it")
	case <-b:
		t.Error("it is written, says it")
	case <-time.After(2 * firstRetry):
	}
	s.entries["bb"].write.Lock() // the disk is not watched while it is changed
	s.entries["aa"].write.Lock()
	w.refuse = nil
	s.entries["aa"].write.Unlock()
	s.entries["bb"].write.Unlock()
	must(t)(s.Note("bb", named("three")))
	<-b
	select {
	case <-a:
	case <-time.After(2 * lastRetry):
		t.Fatal("there is room, and it is not written")
	}
	next := open(t, dir)
	is(t, next, "aa", "newest")
	is(t, next, "bb", "three")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unwritten) > 0 {
		t.Errorf("%d records are left to be written", len(s.unwritten))
	}
}
