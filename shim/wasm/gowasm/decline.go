package gowasm

import (
	"fmt"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

// Declined says why this binary rewrites no module, and what to do about it; "" if it does rewrite.
func Declined() string { return declined(wazeroversion.Check()) }

func declined(wazero error) string {
	if wazero == nil {
		return ""
	}
	return "rewriting builds on the inside of wazero: " + wazero.Error()
}

// knownGo is the release of Go whose compiler and runtime the rewriting was checked with. Runtimes
// up to Go 1.24 may shrink the stack of a goroutine that runs and helps the collector, so that a
// function that it called returns to another stack. Before another release is added, read its
// isShrinkStackSafe (runtime/stack.go) and run the differential suite with it.
const knownGo = "go1.26"

// releaseDeclined says why modules of the release of Go that the sections name are not rewritten,
// "" if they are.
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
