package law

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sunaba-project/sunaba/tests/law/source"
)

// update is a flag of this test: `go test ./tests/law -run TestRatchet -update` writes ratchet.json
// anew.
var update = flag.Bool("update", false, "write ratchet.json from the present state of the project")

// What is above these limits is listed in ratchet.json and may only shrink. The aim is packages of
// 1,500 lines and receivers of 15 methods: the limits come down as the list empties.
const (
	mostMethods = 40
	mostLines   = 3000
)

// step is what lines are rounded up to in ratchet.json, so that not every change has to write it.
const step = 100

// growing are the rooms that are being built. Their lines count once they stand: until then each
// package keeps to the limits alone.
var growing = []string{
	"pods", "host/trace", "criserver/servertrace", "cmd/sunaba/tracing", "cmd/sunaba/podcmd", "cmd/sunaba/podagent", "cmd/sunaba/run", "cmd/sunaba/completion", "cmd/sunaba/statuspage", "criserver/client", "host/systemd/logind",
	"shim/wasm/component", "shim/wasm/canonical", "shim/wasm/wasip2", "shim/wasm/async", "shim/wasm/wasip3", "shim/wasm/wasihttp", "shim/wasm/linear", "shim/wasm/serve",
}

// ratchet is the file ratchet.json: what may only become less. An entry that is larger than the
// truth is an error too, so that what was won stays won.
type ratchet struct {
	// Total is the number of production lines without the rooms that grow; the goal is 62,000.
	Total int `json:"production_lines"`
	// Wide is the number of comment lines of all Go files that are wider than 100 characters.
	Wide int `json:"wide_comment_lines"`
	// Dialect is the number of wordings in comments, texts and documents that have a plain word.
	Dialect int `json:"dialect"`
	// Receivers are the methods of the types that have more than mostMethods.
	Receivers map[string]int `json:"methods"`
	// Packages are the production lines of the packages that have more than mostLines.
	Packages map[string]int `json:"package_lines"`
}

// present is the ratchet as the project is now.
func present(t *testing.T, files []*source.File) ratchet {
	t.Helper()
	production := source.Production(files)
	r := ratchet{Receivers: map[string]int{}, Packages: map[string]int{}}
	for name, methods := range source.Methods(production) {
		if methods > mostMethods {
			r.Receivers[name] = methods
		}
	}
	for folder, size := range source.Sizes(production) {
		if !below(folder, growing...) {
			r.Total += size.Lines
		}
		if size.Lines > mostLines {
			r.Packages[folder] = roundUp(size.Lines)
		}
	}
	for _, f := range files {
		r.Wide += f.Wide
	}
	r.Dialect = roundUp(len(hits(t, files)))
	r.Total, r.Wide = roundUp(r.Total), roundUp(r.Wide)
	return r
}

func roundUp(n int) int { return (n + step - 1) / step * step }

func TestRatchet(t *testing.T) {
	file := filepath.Join(root(t), "tests", "law", "ratchet.json")
	now := present(t, sources(t))
	if *update {
		data, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var listed ratchet
	if err := json.Unmarshal(data, &listed); err != nil {
		t.Fatal(err)
	}
	judge(t, "production lines", listed.Total, now.Total, 0)
	judge(t, "comment lines wider than 100 characters", listed.Wide, now.Wide, 0)
	judge(t, "wordings that have a plain word (go test ./tests/law -run TestDialect -list -v)", listed.Dialect, now.Dialect, 0)
	judgeAll(t, "methods of ", listed.Receivers, now.Receivers, mostMethods)
	judgeAll(t, "lines of ", listed.Packages, now.Packages, mostLines)
}

func judgeAll(t *testing.T, what string, listed, now map[string]int, limit int) {
	t.Helper()
	names := maps.Clone(listed)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		judge(t, what+name, listed[name], now[name], limit)
	}
}

// judge compares one entry with the truth; 0 stands for none, and for a truth within the limit.
func judge(t *testing.T, what string, listed, now, limit int) {
	t.Helper()
	switch {
	case now > listed && listed == 0:
		t.Errorf("%s: %d, above the limit of %d: divide it by subject", what, now, limit)
	case now > listed:
		t.Errorf("%s: %d, and ratchet.json allows %d: it may only fall", what, now, listed)
	case now < listed:
		t.Errorf("%s: %d are listed, which is more than there is: lower it with go test ./tests/law -run TestRatchet -update", what, listed)
	}
}
