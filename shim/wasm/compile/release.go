package compile

import (
	"fmt"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// knownGo is the release of Go whose compiler and runtime the rewriting was checked with. Runtimes up to Go 1.24 may move the stack
// of a goroutine that runs and waits for the collector, so that a function that it has called returns to another stack. Before another one is
// added, its isShrinkStackSafe (runtime/stack.go) is to be read, and the differential suite run with it.
const knownGo = "go1.26"

// releaseDeclined says why modules of the release of Go that the sections name are not rewritten, "" if they are.
func releaseDeclined(sections []format.Section) string {
	version := "one that is not told"
	for _, s := range sections {
		if name, content := s.Custom(); s.ID != format.SectionCustom || name != "producers" {
			continue
		} else if by := format.Producers(content)["language"]; len(by) == 1 {
			version = strings.TrimPrefix(by[0], "Go ")
		}
	}
	if version == knownGo || strings.HasPrefix(version, knownGo+".") || strings.HasPrefix(version, knownGo+" ") {
		return ""
	}
	return fmt.Sprintf("rewriting was checked with %s only, and this release of Go is %.40q", knownGo, version)
}
