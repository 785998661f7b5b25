package gowasm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// producers is the custom section that says by which version of Go a module was made.
func producers(version string) format.Section {
	text := func(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }
	body := append(text("producers"), 1)
	body = append(append(body, text("language")...), 1)
	return format.NewSection(format.SectionCustom, append(append(body, text("Go")...), text(version)...))
}

// TestUncheckedWazeroIsDeclined optimizes a module in a binary with a wazero that was not checked:
// it stays as it was, and the reason says what to do.
func TestUncheckedWazeroIsDeclined(t *testing.T) {
	sections, err := format.Split(aside().wrap())
	if err != nil {
		t.Fatal(err)
	}
	sections = append(sections, producers(knownGo))
	same := func(a, b []format.Section) bool { return bytes.Equal(format.Join(a), format.Join(b)) }
	if got, result := Optimize(sections); same(got, sections) || result.Rewritten == 0 || result.Declined != "" {
		t.Errorf("with the checked version: %+v", result)
	}
	got, result := optimize(sections, errors.New("build it with another"))
	if !same(got, sections) || result.Rewritten != 0 || !strings.Contains(result.Declined, "build it with another") {
		t.Errorf("with another one: %+v", result)
	}
	if got, result := optimize(sections[1:], errors.New("x")); !same(got, sections[1:]) || result != (Result{}) {
		t.Errorf("a module that is not of Go: %+v", result)
	}
	if why := Declined(); why != "" {
		t.Errorf("this binary declines: %q", why)
	}
}

// TestReleases rewrites modules of the release of Go that rewriting was checked with, and no
// others.
func TestReleases(t *testing.T) {
	for version, want := range map[string]bool{
		"go1.26": true, "go1.26.8": true, "go1.26.8 X:jsonv2": true, "go1.24.3": false, "go1.27": false, "go1.260": false, "devel go1.26-abc": false, "": false,
	} {
		why := releaseDeclined([]format.Section{producers(version)})
		if (why == "") != want {
			t.Errorf("version %q: %q", version, why)
		}
	}
	if why := releaseDeclined(nil); !strings.Contains(why, "not told") {
		t.Errorf("without a version: %q", why)
	}
}
