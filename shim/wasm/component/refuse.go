package component

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Interface is the name of an interface: namespace:package/interface@version.
type Interface struct{ Package, Name, Version string }

// ParseInterface reads the name of an import or export. It declines with false what does not name
// an interface of a package.
func ParseInterface(name string) (Interface, bool) {
	rest, version, _ := strings.Cut(name, "@")
	pkg, iface, ok := strings.Cut(rest, "/")
	return Interface{pkg, iface, version}, ok && strings.Contains(pkg, ":") && !strings.Contains(name, "=")
}

// packages are those of WASI 0.2 and 0.3.
func packages() []string {
	return []string{"wasi:cli", "wasi:clocks", "wasi:filesystem", "wasi:http", "wasi:io", "wasi:random", "wasi:sockets"}
}

// Release is the release of WASI that the interface is of, "0.2" or "0.3", "" if of none.
func (i Interface) Release() string {
	if !slices.Contains(packages(), i.Package) || strings.ContainsAny(i.Version, "-+") {
		return ""
	}
	for _, release := range []string{"0.2", "0.3"} {
		if strings.HasPrefix(i.Version, release+".") {
			return release
		}
	}
	return ""
}

// World is the world of WASI that a component is made for, by what it exports: "wasi:cli/command",
// "wasi:http/proxy" (0.2), "wasi:http/service" (0.3), each with its version; "" for another one. One
// of WASI 0.3 comes first: C libraries that are made for 0.2 add an empty command of that.
func (c *Component) World() string {
	first := ""
	for _, e := range c.Exports {
		i, ok := ParseInterface(e.Name)
		if !ok || e.Item.Sort != SortInstance {
			continue
		}
		world := ""
		switch release := i.Release(); {
		case release == "":
		case i.Package == "wasi:cli" && i.Name == "run":
			world = "wasi:cli/command"
		case release == "0.2" && i.Package == "wasi:http" && i.Name == "incoming-handler":
			world = "wasi:http/proxy"
		case release == "0.3" && i.Package == "wasi:http" && i.Name == "handler":
			world = "wasi:http/service"
		}
		switch {
		case world == "":
		case i.Release() == "0.3":
			return world + "@" + i.Version
		case first == "":
			first = world + "@" + i.Version
		}
	}
	return first
}

// maxRefusals is how many reasons are told.
const maxRefusals = 100

// Refusals says why a component cannot become one core module with imports of WASI only: a text for
// each reason, none if it can.
func (c *Component) Refusals() []string {
	var all []string
	refuse := func(text string, args ...any) { all = append(all, fmt.Sprintf(text, args...)) }
	for _, i := range c.Imports {
		c.refuseImport(i, refuse)
	}
	if c.World() == "" {
		refuse("it exports neither wasi:cli/run nor wasi:http/incoming-handler (of WASI 0.3: wasi:http/handler), so it is no command and no HTTP service")
	}
	c.refuseInstances(refuse)
	for _, canon := range c.Canons {
		if text := canon.refusal(); text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	if own := slices.IndexFunc(c.Types, func(t *Type) bool { return t.Defined }); own >= 0 {
		refuse("it defines a resource of its own (at byte %d)", c.Types[own].Offset)
	}
	if len(c.Starts) > 0 {
		refuse("it has a start function of the component level (at byte %d)", c.Starts[0].Offset)
	}
	if more := len(all) - maxRefusals; more > 0 {
		all = append(all[:maxRefusals], fmt.Sprintf("and %d more reasons", more))
	}
	return all
}

// refuseImport names an import that is not of WASI.
func (c *Component) refuseImport(i *Import, refuse func(string, ...any)) {
	name, ok := ParseInterface(i.Name)
	switch {
	case i.Sort == SortType && i.Type.Kind != Resource: // only a name for a type
	case i.Sort != SortInstance:
		refuse("it imports a %s, %q; only interfaces of WASI are provided", i.Sort, i.Name)
	case !ok || !slices.Contains(packages(), name.Package):
		refuse("it imports %q, which is not of WASI; of WASI 0.2 and 0.3 there are %s", i.Name, strings.Join(packages(), ", "))
	case name.Release() == "":
		refuse("it imports %q, which is of no release of WASI: 0.2 and 0.3 are", i.Name)
	case i.Type.Shared:
		refuse("it imports %q by a type that another import has too", i.Name)
	}
}

// refuseInstances looks at what is instantiated.
func (c *Component) refuseInstances(refuse func(string, ...any)) {
	for _, n := range c.Components {
		if at := n.runs(); at >= 0 {
			refuse("it is composed of several components: one within it (at byte %d) has core instances or functions of its own", at)
			break
		}
	}
	for _, i := range c.Instances {
		if i.Component != nil && i.Component.Type != nil {
			refuse("it instantiates a component that it imports (at byte %d)", i.Offset)
			break
		}
	}
	memories, times := 0, map[*Module]int{}
	for _, i := range c.CoreInstances {
		m := i.Module
		if m == nil {
			continue
		}
		if m.Bytes == nil {
			refuse("it instantiates a core module that it imports (at byte %d)", i.Offset)
			continue
		}
		if times[m]++; times[m] == 2 {
			refuse("it instantiates the core module at byte %d more than once", m.Offset)
		}
		if times[m] > 1 {
			continue
		}
		if sections, err := format.Split(m.Bytes); err != nil {
			refuse("the core module at byte %d is not valid: %v", m.Offset, err)
		} else if own, ok := format.Memories(sections); !ok {
			refuse("the core module at byte %d is not valid: its memories cannot be read", m.Offset)
		} else {
			memories += len(own)
		}
	}
	if memories > 1 {
		refuse("it has %d memories, and one is accepted", memories)
	}
}

// runs is where a component that is more than a list of names starts, -1 if it is not.
func (c *Component) runs() int {
	if len(c.CoreInstances) > 0 || len(c.Canons) > 0 {
		return c.Offset
	}
	for _, n := range c.Components {
		if at := n.runs(); at >= 0 {
			return at
		}
	}
	return -1
}

// refusal says what of a canonical definition is not supported, "" if all is.
func (c *Canon) refusal() string {
	switch {
	case c.Op == Lift && c.Options.Async && c.Options.Callback == nil:
		return "it lifts an asynchronous function without a callback (stackful)"
	case c.Options.GC || c.Options.CoreType != nil:
		return "it passes values of garbage collection"
	case c.Op >= ThreadIndex && c.Op <= ThreadParallelism:
		return fmt.Sprintf("it uses threads (%s)", c.Op)
	case c.Op == Lower && c.Func.Type != nil && c.Func.Canon != nil:
		return "it lowers a function that it lifts itself"
	}
	return ""
}
