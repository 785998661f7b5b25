// Package scripts runs the scenarios that are lists of commands, with the real binaries and crictl:
// text scripts, and the manifests of examples/pods. Each has a node of its own and ends with a look
// at what is left on the machine.
package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/stage"
)

var world stage.World

func TestMain(m *testing.M) {
	os.Exit(stage.Main(m, "scripts", "..", &world, map[string][]string{"TestPodScripts": named(podScripts), "TestScripts": named(scripts)}))
}

// The scripts of each test, which are shared out one by one.
const (
	scripts    = "testdata/*.txtar"
	podScripts = "testdata/pods/*.txtar"
)

// named are the names of scripts, each a subtest's; a test without any fails.
func named(pattern string) (names []string) {
	files, _ := filepath.Glob(pattern) // fails for a bad pattern only
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".txtar"))
	}
	return names
}
