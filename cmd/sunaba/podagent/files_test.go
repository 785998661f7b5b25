package podagent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	refused := `Warning ManifestRefused a.yaml: document 1, configmap default/page: unknown field "edited" (line 5); the last good version goes on`
	r.expect(loaded, refused)
	r.file("new.yaml", "kind: [\n")
	r.until("the new one", func() bool { return len(r.happened()) == 3 })
	fresh := r.happened()[2]
	if !strings.HasPrefix(fresh, "Warning ManifestRefused new.yaml: document 1: ") || strings.Contains(fresh, "goes on") || strings.Contains(fresh, r.dir) {
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

// unread says that a file was not read since the start.
func unread(f desired.File) bool { return strings.HasPrefix(f.Message, "was not read yet") }
