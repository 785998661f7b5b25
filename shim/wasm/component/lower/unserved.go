package lower

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/component"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// checkServed refuses a component for a world that is not served, and one whose core modules import
// from interfaces that are not: all of them, by name.
func checkServed(c *component.Component, plan *component.Plan) error {
	var reasons []string
	if !slices.ContainsFunc(plan.Exports, isEntry) {
		reasons = append(reasons, fmt.Sprintf("it is made for the world %s; components for wasi:cli/command@0.2 and wasi:http/proxy@0.2 run, and those of WASI 0.3 do not yet", c.World()))
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

// isEntry says whether an export is a function by which a component of WASI 0.2 runs: that of a
// command, or of one that answers HTTP requests.
func isEntry(e component.Lifted) bool {
	bare, version, _ := strings.Cut(e.Interface, "@")
	return strings.HasPrefix(version, "0.2.") &&
		(bare == "wasi:cli/run" && e.Name == "run" || bare == "wasi:http/incoming-handler" && e.Name == "handle")
}

// served are the interfaces that components may import, without their versions, sorted.
func served() []string {
	all := maps.Clone(wasip2.World().Interfaces)
	maps.Copy(all, wasihttp.World().Interfaces)
	return slices.Sorted(maps.Keys(all))
}

// unserved says what is served in place of an interface that is not, "" if it is.
func unserved(name string) string {
	i, ok := component.ParseInterface(name)
	if !ok || i.Release() == "0.3" {
		return "components of WASI 0.3 do not run yet"
	}
	var siblings []string
	for _, name := range served() {
		if pkg, one, _ := strings.Cut(name, "/"); pkg == i.Package {
			siblings = append(siblings, one)
		}
	}
	if slices.Contains(siblings, i.Name) {
		return ""
	}
	return "of " + i.Package + " the interfaces " + strings.Join(siblings, ", ") + " are"
}
