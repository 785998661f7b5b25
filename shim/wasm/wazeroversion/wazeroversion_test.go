package wazeroversion

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// TestCheckedIsRequired fails when go.mod gets another wazero. Do then what the comment of Checked
// says.
func TestCheckedIsRequired(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	mod := read("go.mod")
	required := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(Path) + ` (\S+)`).FindStringSubmatch(mod)
	if required == nil || required[1] != Checked {
		t.Errorf("go.mod has wazero %s, checked is %s", required, Checked)
	}
	if regexp.MustCompile(regexp.QuoteMeta(Path) + `.*=>`).MatchString(mod) {
		t.Error("go.mod replaces wazero")
	}
	if line := Path + " " + Checked + " " + checkedSum + "\n"; !strings.Contains(read("go.sum"), line) {
		t.Errorf("go.sum lacks %q", line)
	}
}

func TestOnlyTheCheckedVersionPasses(t *testing.T) {
	with := func(m debug.Module) *debug.BuildInfo {
		m.Path = Path
		return &debug.BuildInfo{Path: "example.org/shim", Deps: []*debug.Module{{Path: "example.org/other"}, &m}}
	}
	for _, c := range []struct {
		what  string
		info  *debug.BuildInfo
		want  bool
		whole string
	}{
		{"the checked version", with(debug.Module{Version: Checked, Sum: checkedSum}), true, Checked + " " + checkedSum},
		{"another version", with(debug.Module{Version: "v1.12.1", Sum: "h1:x="}), false, "v1.12.1 h1:x="},
		{"another checksum", with(debug.Module{Version: Checked, Sum: "h1:x="}), false, Checked + " h1:x="},
		{"a vendor folder", with(debug.Module{Version: Checked}), false, Checked},
		{"a workspace", with(debug.Module{Version: "(devel)"}), false, "(devel)"},
		{"a folder in its place", with(debug.Module{Version: Checked, Sum: checkedSum, Replace: &debug.Module{Path: "../wazero", Version: "(devel)"}}),
			false, Checked + " " + checkedSum + " => ../wazero (devel)"},
		{"another module in its place", with(debug.Module{Version: Checked, Replace: &debug.Module{Path: "example.org/fork", Version: Checked, Sum: checkedSum}}),
			false, Checked + " => example.org/fork " + Checked + " " + checkedSum},
		{"no versions at all", &debug.BuildInfo{Path: "example.org/shim"}, false, Unknown},
		{"a test of this project", &debug.BuildInfo{Path: project + "/shim.test", Main: debug.Module{Path: project}}, true, Unknown},
		{"a test of another project", &debug.BuildInfo{Path: "example.org/shim.test", Main: debug.Module{Path: "example.org"}}, false, Unknown},
		{"a program of this project", &debug.BuildInfo{Path: project + "/cmd/sunaba", Main: debug.Module{Path: project}}, false, Unknown},
	} {
		err := check(c.info, true)
		if (err == nil) != c.want {
			t.Errorf("%s: %v, want it to pass: %v", c.what, err, c.want)
		}
		if err != nil && !(strings.Contains(err.Error(), Checked) && strings.Contains(err.Error(), " has "+c.whole+": build it with ")) {
			t.Errorf("%s: error %q", c.what, err)
		}
		if got := linked(c.info, true); got != c.whole {
			t.Errorf("%s: version %q, want %q", c.what, got, c.whole)
		}
	}
	if err := check(nil, false); err == nil || linked(nil, false) != Unknown {
		t.Errorf("a binary without build information passes: %v", err)
	}
	if err := Check(); err != nil {
		t.Errorf("this binary: %v", err)
	}
}
