package facts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sunaba-project/sunaba/criserver/spec"
)

func TestRuntimes(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	version := func(text string) string { return "[ $1 = --version ] || exit 1; echo '" + text + "'" }
	runtimes := map[string]struct {
		answers bool
		want    spec.Runtime
		script  string
	}{
		"lists it":       {true, spec.Runtime{RecursiveReadOnly: true}, `echo '{"ociVersionMin":"1.0.0","mountOptions":["ro","rro"]}'`},
		"lists others":   {true, spec.Runtime{}, `echo '{"ociVersionMin":"1.0.0","mountOptions":["ro"]}'`},
		"runc":           {true, spec.Runtime{OneStep: true}, `echo '{"annotations":{"org.opencontainers.runc.version":"1.1.5"}}'`},
		"newer crun":     {true, spec.Runtime{}, `echo '{"annotations":{"run.oci.crun.version":"1.15"}}'`},
		"says nonsense":  {false, spec.Runtime{}, "echo nonsense"},
		"old crun":       {true, spec.Runtime{}, version("crun version 1.3")},
		"crun":           {true, spec.Runtime{RecursiveReadOnly: true}, version("crun version 1.8.1\ncommit: x")},
		"old runc":       {true, spec.Runtime{}, version("runc version 1.0.3")},
		"crun of no age": {true, spec.Runtime{}, version("crun version UNKNOWN")},
		"broken":         {false, spec.Runtime{}, "exit 1"},
	}
	binaries := []string{filepath.Join(dir, "missing")}
	paths := map[string]string{}
	for name, r := range runtimes {
		paths[name] = script(name, r.script)
		binaries = append(binaries, paths[name])
	}
	got := Runtimes(t.Context(), binaries)
	if _, ok := got[binaries[0]]; ok {
		t.Error("a missing runtime answers")
	}
	for name, r := range runtimes {
		have, ok := got[paths[name]]
		if ok != r.answers || have != r.want {
			t.Errorf("%s: %+v, %v", name, have, ok)
		}
	}
}
