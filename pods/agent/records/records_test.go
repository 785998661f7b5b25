package records

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/cycle"
)

const (
	a = "11111111-2222-4333-8444-555555555555"
	b = "21111111-2222-4333-8444-555555555555"
)

func record(uid string) *Record {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID(uid)}}
	return &Record{Record: *cycle.New(pod, "runc", cycle.Source{Kind: "file", File: "web.yaml"}), Manifest: pod, Inputs: map[string]string{"configmap default/x": "1"}}
}

// E.1: a record is what it was; what a crash left is removed.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{b, a} {
		data, err := Encode(record(uid))
		if err != nil {
			t.Fatal(err)
		}
		for _, sync := range []bool{true, false} {
			if err := s.Write(uid, data, sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, strings.Replace(a, "1", "9", 1)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, a, ".pod.json.tmp-1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, broken, err := s.Load()
	if err != nil || len(broken) != 0 || len(all) != 2 || all[0].UID() != a || all[1].UID() != b {
		t.Fatalf("%d records, %d broken, %v", len(all), len(broken), err)
	}
	if r := all[0]; r.Handler != "runc" || r.Source.File != "web.yaml" || r.Manifest.Name != "web" || r.Inputs["configmap default/x"] != "1" {
		t.Errorf("record %+v", r)
	}
	for _, uid := range []string{a, b, b} {
		if err := s.Remove(uid); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%d entries are left, %v", len(entries), err)
	}
}

// E.4: a change is one synced write, added to the file. The last whole line counts, whatever a
// crash left after it, and a file that has grown is replaced.
func TestLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, a, fileName)
	var modes []Mode
	var refuse error
	open := func() *Store {
		s, err := Open(dir, func(path string, data []byte, m Mode) error {
			modes = append(modes, m)
			return errors.Join(refuse, durable.Put(path, data, m))
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	handler := func(name string) []byte {
		r := record(a)
		r.Handler = name
		data, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	is := func(s *Store, name string) {
		t.Helper()
		all, broken, err := s.Load()
		if err != nil || len(broken) != 0 || len(all) != 1 || all[0].Handler != name {
			t.Fatalf("%d records, %v, %v; want handler %s", len(all), broken, err, name)
		}
	}
	write := func(s *Store, name string, sync bool, want Mode) {
		t.Helper()
		modes = nil
		if err := s.Write(a, handler(name), sync); (err == nil) != (refuse == nil) || len(modes) != 1 || modes[0] != want {
			t.Fatalf("%v, written as %+v, want %+v", err, modes, want)
		}
	}
	s := open()
	write(s, "one", true, Mode{Sync: true})
	write(s, "two", true, Mode{Append: true, Sync: true})
	write(s, "three", false, Mode{Append: true})
	is(s, "three")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, tail := range map[string]string{
		"half a line": string(handler("four")[:100]), "nothing of it": strings.Repeat("\x00", 50),
		"its last page": strings.Repeat("\x00", 50) + string(handler("four")[50:]),
	} {
		if err := os.WriteFile(path, append(whole, tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		s = open()
		is(s, "three")
		write(s, what, true, Mode{Sync: true}) // what the crash left is no part of it
		is(open(), what)
	}
	refuse = errors.New("no room")
	write(s, "lost", true, Mode{Append: true, Sync: true})
	refuse = nil
	write(s, "after", true, Mode{Sync: true})
	for range 2 * maxFile / len(handler("more")) {
		if err := s.Write(a, handler("more"), true); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > maxFile {
			t.Fatalf("%v, %v", info.Size(), err)
		}
	}
	is(s, "more")
	// The name of a file that was replaced without a sync may be lost, and what is added with it.
	if err := s.Remove(a); err != nil {
		t.Fatal(err)
	}
	write(s, "note", false, Mode{})
	write(s, "saved", true, Mode{Sync: true})
	write(s, "more", true, Mode{Append: true, Sync: true})
}

// E.2: unreadable records are set aside, a newer version refuses the start and moves nothing.
func TestUnreadable(t *testing.T) {
	good, err := Encode(record(a))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "half": string(good[:20]), "another pod's": strings.ReplaceAll(string(good), a, b),
		"version 0": strings.Replace(string(good), `"version":1`, `"version":0`, 1), "unknown field": strings.Replace(string(good), `"source"`, `"sauce"`, 1),
		"no pod": `{"version":1}`,
	} {
		dir := t.TempDir()
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(a, []byte(text), true); err != nil {
			t.Fatal(err)
		}
		all, broken, err := s.Load()
		if err != nil || len(all) != 0 || len(broken) != 1 || broken[0].UID != a || broken[0].Err == nil {
			t.Errorf("%s: %d records, %v, %v", name, len(all), broken, err)
			continue
		}
		if kept, err := os.ReadFile(broken[0].Path); err != nil || string(kept) != text || filepath.Dir(broken[0].Path) != filepath.Join(dir, "broken") {
			t.Errorf("%s: kept %q in %s, %v", name, kept, broken[0].Path, err)
		}
	}
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(a, []byte(`{"version":2,"new":true}`), true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, broken, err := s.Load(); !errdefs.IsFailedPrecondition(err) || len(broken) != 0 {
			t.Errorf("a newer version: %v, %v", broken, err)
		}
	}
}
