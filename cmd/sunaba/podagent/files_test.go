package podagent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/desired"
)

// expect waits until the events about manifests are these.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	var got []string
	for end := time.Now().Add(30 * time.Second); !slices.Equal(got, want); time.Sleep(5 * time.Millisecond) {
		if got = r.happened(); time.Now().After(end) {
			r.t.Fatalf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// B.2, B.8: a file that is loaded or refused has an event, which counts as others do. A listing and
// a new start that find the file as it was record none.
func TestFileEvents(t *testing.T) {
	r := newRig(t)
	r.file("a.yaml", configText)
	r.start()
	loaded := "Normal ManifestLoaded a.yaml: Loaded 1 objects"
	r.expect(loaded)
	r.file("a.yaml", configText+"edited: true\n")
	refused := `Warning ManifestRefused a.yaml: document 1, configmap default/page: unknown field "edited" (line 5); the last good version stays in use`
	r.expect(loaded, refused)
	r.file("new.yaml", "kind: [\n")
	r.until("the new one", func() bool { return len(r.happened()) == 3 })
	fresh := r.happened()[2]
	if !strings.HasPrefix(fresh, "Warning ManifestRefused new.yaml: document 1: ") || strings.Contains(fresh, "stays in use") || strings.Contains(fresh, r.dir) {
		t.Errorf("event %q", fresh)
	}
	all := []string{loaded, refused, fresh}
	for range 2 {
		r.set.Reload()
	}
	time.Sleep(300 * time.Millisecond)
	r.expect(all...)
	r.stop()

	before, err := os.ReadFile(filepath.Join(r.dir, "state", "events"))
	r.must(err)
	r.start()
	r.until("read after the start", func() bool { return !slices.ContainsFunc(r.set.Files(), unread) })
	r.expect(all...)
	r.stop()
	after, err := os.ReadFile(filepath.Join(r.dir, "state", "events"))
	r.must(err)
	if strings.Count(string(after), "Manifest") != strings.Count(string(before), "Manifest") {
		t.Errorf("the start wrote events of files: %s", after)
	}

	r.file("a.yaml", configText) // mended while no server ran
	r.start()
	r.expect(refused, fresh, loaded+" again")
	r.file("a.yaml", configText+"edited: true\n")
	r.expect(fresh, loaded+" again", refused+" again")
	r.stop()
	r.file("a.yaml", strings.ReplaceAll(configText, "VALUE", "other"))
	r.start()
	r.until("loaded", func() bool { last := r.happened(); return last[len(last)-1] == loaded+" again" })
}

// A.1, B.1, B.3: what is ignored in a file is said, by events and with the file, also while the
// version that ignores it goes on in the place of one that is refused, and after a new start.
func TestNothingIsIgnoredInSilence(t *testing.T) {
	r := newRig(t)
	r.ignore = []string{"NetworkPolicy"}
	text := configText + "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: wall}\nspec: {}\n" +
		"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n" +
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {nodeName: elsewhere, enableServiceLinks: true, containers: [{name: app, image: 'app:1'}]}\n"
	notes := []string{
		"document 2, networkpolicy default/wall: is ignored: its kind is on [pods] ignore_kinds",
		"document 3, namespace prod: is ignored: this kind has no effect on one node",
		"document 4, pod default/web: spec.enableServiceLinks: has no effect on one node",
	}
	shown := func() bool {
		files := list[api.Manifest](r, "manifests")
		return len(files) == 1 && files[0].Objects == 2 && slices.Equal(files[0].Notes, notes)
	}
	r.file("a.yaml", text)
	r.start()
	r.until("the notes", shown)
	want := []string{"Normal ManifestLoaded a.yaml: Loaded 2 objects"}
	for _, n := range notes {
		want = append(want, "Normal Ignored a.yaml: "+n)
	}
	r.expect(want...)
	r.file("a.yaml", text+"edited: true\n")
	r.until("refused", func() bool { return list[api.Manifest](r, "manifests")[0].Status == api.ManifestRefused })
	if !shown() {
		t.Errorf("with a refused edit: %+v", list[api.Manifest](r, "manifests"))
	}
	r.stop()
	r.start()
	if !shown() {
		t.Errorf("after a new start: %+v", list[api.Manifest](r, "manifests"))
	}
}

// A file whose fields have no effect by the thousand says so in a few lines and events.
func TestManyIgnored(t *testing.T) {
	r := newRig(t)
	r.file("a.yaml", configText+strings.Repeat("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n", 300))
	r.start()
	r.until("the events", func() bool { return len(r.happened()) == 22 })
	if last := r.happened()[21]; last != "Normal Ignored a.yaml: More is ignored, see: sunaba describe manifest/a.yaml" {
		t.Errorf("the last event: %s", last)
	}
	notes := list[api.Manifest](r, "manifests")[0].Notes
	if len(notes) != 101 || notes[100] != "200 more are not listed" {
		t.Errorf("%d notes, the last is %q", len(notes), notes[len(notes)-1])
	}
}

// unread says that a file was not read since the start.
func unread(f desired.File) bool { return strings.HasPrefix(f.Message, "was not read yet") }
