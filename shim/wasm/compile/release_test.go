package compile

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// TestReleases rewrites modules of the release of Go that rewriting was checked with, and no others.
func TestReleases(t *testing.T) {
	text := func(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }
	for version, want := range map[string]bool{
		"go1.26": true, "go1.26.8": true, "go1.26.8 X:jsonv2": true, "go1.24.3": false, "go1.27": false, "go1.260": false, "devel go1.26-abc": false, "": false,
	} {
		producers := append(text("producers"), 1)
		producers = append(append(producers, text("language")...), 1)
		producers = append(append(producers, text("Go")...), text(version)...)
		why := releaseDeclined([]format.Section{format.NewSection(format.SectionCustom, producers)})
		if (why == "") != want {
			t.Errorf("version %q: %q", version, why)
		}
	}
	if why := releaseDeclined(nil); !strings.Contains(why, "not told") {
		t.Errorf("without a version: %q", why)
	}
}
