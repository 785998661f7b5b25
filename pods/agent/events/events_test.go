package events

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/host/durable"
)

func event(name, message string) Event {
	return Event{Object: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name}, Type: corev1.EventTypeNormal, Reason: "Pulled", Message: message}
}

// B.8: the same is counted; a ring of 1000; one hour; kept in a file.
func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	changes := 0
	s := Open(path, "node", now, func() { changes++ })
	for i := range 12 {
		s.Record(event("web", "back-off"), now.Add(time.Duration(i)*20*time.Second))
	}
	first := s.List(now.Add(4 * time.Minute))
	if len(first) != 1 || first[0].Count != 12 || first[0].LastTimestamp.Sub(first[0].FirstTimestamp.Time) != 220*time.Second || changes != 12 {
		t.Fatalf("%d events, %+v, %d changes", len(first), first[0], changes)
	}
	s.Record(event("web", "back-off"), now.Add(5*time.Minute))
	if first[0].Count != 12 {
		t.Error("an event that was given out was changed")
	}
	for i := range 1005 {
		s.Record(event(fmt.Sprint("pod", i), "started"), now.Add(6*time.Minute))
	}
	list := s.List(now.Add(7 * time.Minute))
	if len(list) != 1000 || list[0].InvolvedObject.Name != "pod5" || list[999].InvolvedObject.Name != "pod1004" {
		t.Errorf("%d events, from %s to %s", len(list), list[0].InvolvedObject.Name, list[len(list)-1].InvolvedObject.Name)
	}
	if err := s.Flush(now.Add(7 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(now.Add(8 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the file was written though nothing changed: %v", err)
	}
	unfinished, err := durable.Create(path) // by a server that is killed before it is whole
	if err != nil {
		t.Fatal(err)
	}
	again := Open(path, "node", now.Add(8*time.Minute), nil)
	if got := again.List(now.Add(8 * time.Minute)); len(got) != 1000 || got[999].InvolvedObject.Name != "pod1004" {
		t.Errorf("%d events were read back", len(got))
	}
	if _, err := os.Stat(unfinished.Name()); !os.IsNotExist(err) {
		t.Errorf("the unfinished file: %v", err)
	}
	if got := again.List(now.Add(2 * time.Hour)); len(got) != 0 {
		t.Errorf("%d events after an hour", len(got))
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Open(path, "node", now, nil).List(now); len(got) != 0 {
		t.Errorf("%d events of a damaged file", len(got))
	}
}

func TestLongMessage(t *testing.T) {
	now := time.Now()
	s := Open(filepath.Join(t.TempDir(), "events"), "node", now, nil)
	s.Record(event("web", strings.Repeat("ä", 1000)), now)
	if got := s.List(now)[0].Message; len(got) > maxMessage || !strings.HasSuffix(got, "ä…") {
		t.Errorf("message of %d bytes ends with %q", len(got), got[len(got)-8:])
	}
}

// What happens after a new start is newer than what was kept, also in the same second; Newest tells
// which of some reasons was the last about an object.
func TestNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	s := Open(path, "node", now, nil)
	for _, reason := range []string{"a", "b", "a", "b", "a", "b"} {
		e := event("web", "m")
		e.Reason = reason
		s.Record(e, now)
	}
	if err := s.Flush(now); err != nil {
		t.Fatal(err)
	}
	s = Open(path, "node", now, nil)
	e := event("web", "m")
	e.Reason = "a"
	s.Record(e, now)
	e.Reason = "c"
	s.Record(e, now)
	if last := s.Newest(e.Object, now, "a", "b"); last == nil || last.Reason != "a" || last.Count != 4 {
		t.Errorf("the newest is %+v", last)
	}
	e.Object.FieldPath = "another"
	if last := s.Newest(e.Object, now, "a", "b", "c"); last != nil {
		t.Errorf("of another object: %+v", last)
	}
}
