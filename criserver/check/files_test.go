package check

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// A record of which an older version is used is a finding: the text says which file and which
// lines. Of a record of a newer release too; what that owns is not taken for unowned.
func TestRecordsThatAreNotAsTheyWere(t *testing.T) {
	o := Options{Root: t.TempDir(), State: t.TempDir(), Served: true}
	s, err := state.Open(o.containerRecords(), slog.New(slog.DiscardHandler), state.CheckContainer, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"older", "newer", "sound"} {
		if err := s.Create(id, state.Container{
			ID: id, SandboxID: "pod", Phase: state.Created,
			Config: state.ContainerConfig{Value: &runtime.ContainerConfig{Metadata: &runtime.ContainerMetadata{Name: id}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{}
	for id, line := range map[string]string{"older": "{\"version\":1,}\n", "newer": "{\"version\":7}\n"} {
		records, err := readRecords(o)
		if err != nil {
			t.Fatal(err)
		}
		files[id] = records.containers.Files[id]
		f, err := os.OpenFile(filepath.Join(o.containerRecords(), files[id]), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	records, err := readRecords(o)
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{o: o, records: records}
	j.files()
	slices.SortFunc(j.findings, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	if len(j.findings) != 2 {
		t.Fatalf("findings %+v", j.findings)
	}
	for i, want := range [][]string{
		{files["newer"], "format 7", "newer release", "formats up to 2", "start the newer release"},
		{files["older"], "line 2 of 2 is damaged, line 1 is used", "crictl rm -f older"},
	} {
		f := j.findings[i]
		for _, says := range want {
			if text := f.Subject + ": " + f.What + "\n" + f.Do; !strings.Contains(text, says) {
				t.Errorf("%q does not say %q", text, says)
			}
		}
	}
}
