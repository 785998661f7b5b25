package wasip2

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// command are the functions of wasi:cli/command@0.2.12.
func command(t testing.TB) []wasitest.Lowered {
	t.Helper()
	text, err := os.ReadFile("testdata/command.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []wasitest.Lowered
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(strings.ReplaceAll(line, "-\n", "\n")); len(fields) > 0 && fields[0] != "#" {
			f := wasitest.Lowered{Module: fields[0] + "@0.2.12", Name: fields[1]}
			if len(fields) > 2 {
				f.Params = strings.Trim(fields[2], "-")
			}
			if len(fields) > 3 {
				f.Results = fields[3]
			}
			all = append(all, f)
		}
	}
	return all
}

// unserved are the functions that are unstable: no toolchain imports them without being told to.
var unserved = []string{"wasi:clocks/timezone"}

// TestEveryFunctionOfTheWorld compares what is served with the specification, in both directions.
func TestEveryFunctionOfTheWorld(t *testing.T) {
	specified := map[string]bool{}
	functions, resources := 0, 0
	for _, f := range command(t) {
		bare := strings.TrimSuffix(f.Module, "@0.2.12")
		specified[bare+" "+f.Name] = true
		if strings.HasPrefix(f.Name, "[resource-drop]") {
			resources++
		} else {
			functions++
		}
		got, err := canonical.Find(f.Module, f.Name, World())
		if slices.Contains(unserved, bare) {
			if !errdefs.IsNotFound(err) {
				t.Errorf("%s %s: %v", f.Module, f.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", f.Module, f.Name, err)
			continue
		}
		if got.Params != f.Params || got.Results != f.Results {
			t.Errorf("%s %s: got %v → %v, want %s → %s", f.Module, f.Name, got.Params, got.Results, f.Params, f.Results)
		}
	}
	if functions != 126 || resources != 14 {
		t.Errorf("%d functions, %d resources", functions, resources)
	}
	for iface, list := range interfaces {
		for _, f := range list {
			if !specified[iface+" "+f.Name] {
				t.Errorf("%s %s is served, and in no specification", iface, f.Name)
			}
		}
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"0.2.0": true, "0.2.9": true, "0.2.12": true, "0.2.100": true,
		"": false, "0.2": false, "0.3.0": false, "0.2.0-rc-2023-12-05": false, "0.2.": false, "1.2.0": false,
	} {
		_, err := canonical.Find("wasi:cli/exit@"+version, "exit", World())
		if want && err != nil || !want && !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%q: %v", version, err)
		}
	}
	for _, f := range [][2]string{
		{"wasi:cli/exit@0.2.0", "leave"}, {"wasi:http/types@0.2.0", "exit"}, {"spin:key-value/store@0.2.0", "get"},
	} {
		if _, err := canonical.Find(f[0], f[1], World()); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%s: %v", f, err)
		}
	}
}
