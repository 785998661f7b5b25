package lower

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip3"
)

// checkServed refuses a component for a world that is not served, and one whose core modules import
// from interfaces that are not: all of them, by name.
func checkServed(c *component.Component, plan *component.Plan) error {
	var reasons []string
	if !slices.ContainsFunc(plan.Exports, isEntry) {
		reasons = append(reasons, fmt.Sprintf("it is made for the world %s; components for wasi:cli/command@0.2 and @0.3, wasi:http/proxy@0.2 and wasi:http/service@0.3 run", c.World()))
	}
	seen := map[string]bool{}
	for _, p := range plan.Instances {
		for _, b := range p.Imports {
			if b.Host == nil || b.Host.Interface == "" || seen[b.Host.Interface] {
				continue
			}
			seen[b.Host.Interface] = true
			if why := unserved(b.Host.Interface); why != "" {
				reasons = append(reasons, fmt.Sprintf("it imports %q, which is not served: %s", b.Host.Interface, why))
			}
		}
	}
	if len(reasons) > 0 {
		return &component.RefusedError{Reasons: reasons}
	}
	return nil
}

// worlds are what components get.
func worlds() []canonical.World {
	return []canonical.World{wasip2.World(), wasihttp.World(), wasip3.World(), wasihttp.Service()}
}

// release is that of WASI that an export is of.
func release(e component.Lifted) string {
	i, _ := component.ParseInterface(e.Interface)
	return i.Release()
}

// isEntry says whether an export is a function by which a component runs: that of a command, or of
// one that answers HTTP requests.
func isEntry(e component.Lifted) bool {
	bare, _, _ := strings.Cut(e.Interface, "@")
	return release(e) != "" && bare == "wasi:cli/run" && e.Name == "run" ||
		release(e) == "0.2" && bare == "wasi:http/incoming-handler" && e.Name == handleName ||
		release(e) == "0.3" && bare == "wasi:http/handler" && e.Name == handleName
}

// served are the interfaces of a release that components may import, without their versions,
// sorted.
func served(release string) []string {
	all := map[string]bool{}
	for _, w := range worlds() {
		if w.Of() == release {
			for name := range w.All() {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// unserved says what is served in place of an interface that is not, "" if it is.
func unserved(name string) string {
	i, _ := component.ParseInterface(name)
	var siblings []string
	for _, name := range served(i.Release()) {
		if pkg, one, _ := strings.Cut(name, "/"); pkg == i.Package {
			siblings = append(siblings, one)
		}
	}
	switch {
	case slices.Contains(siblings, i.Name):
		return ""
	case len(siblings) == 0:
		return "of " + i.Package + "@" + i.Release() + " no interface is"
	}
	return "of " + i.Package + " the interfaces " + strings.Join(siblings, ", ") + " are"
}
