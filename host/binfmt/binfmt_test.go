package binfmt

import (
	"slices"
	"testing"
)

func TestPaths(t *testing.T) {
	for _, c := range []struct {
		name, cwd string
		env, want []string
	}{
		{"/a/../b", "/w", nil, []string{"/a/../b"}},
		{"./b", "/w", nil, []string{"/w/b"}},
		{"b", "w", []string{"PATH=/one:two::"}, []string{"/one/b", "/w/two/b", "/w/b", "/w/b", "/w/b"}},
		{"b", "", []string{"PATH=/one", "PATH=/two"}, []string{"/two/b", "/b"}},
		{"b", "/w", nil, []string{"/usr/local/sbin/b", "/usr/local/bin/b", "/usr/sbin/b", "/usr/bin/b", "/sbin/b", "/bin/b", "/w/b"}},
	} {
		if got := Paths(c.name, c.cwd, c.env); !slices.Equal(got, c.want) {
			t.Errorf("%q in %q with %q: %q, want %q", c.name, c.cwd, c.env, got, c.want)
		}
	}
}

func TestScriptInterpreter(t *testing.T) {
	for head, want := range map[string]string{
		"": "", "#": "", "#!": "", "#!/bin/sh": "/bin/sh", "#! \t/bin/sh -e\nx": "/bin/sh", "\x7fELF": "",
	} {
		if got := ScriptInterpreter([]byte(head)); got != want {
			t.Errorf("%q: %q, want %q", head, got, want)
		}
	}
}
