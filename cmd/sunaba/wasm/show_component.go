package wasm

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/shim/wasm/inspect"
)

// component shows what components have.
func component(w io.Writer, r inspect.Report) {
	c := r.Component
	line(w, "world", cmp.Or(clean(c.World), "none of WASI's"))
	if c.HTTP {
		line(w, "serves", "HTTP, on the container's first TCP port, or 8080 without one")
	}
	content(w, r)
	steps(w, r.Light)
	if len(c.Async) > 0 {
		line(w, "async", strings.Join(c.Async, ", "))
	}
	for i, m := range c.Modules {
		line(w, head("core modules", i), coreModule(i, m))
	}
	if c.Components > 0 {
		line(w, "components", fmt.Sprintf("%d within it", c.Components))
	}
	for i, one := range c.Imports {
		line(w, head("imports", i), interfaceText(one))
	}
	for i, one := range c.Exports {
		line(w, head("exports", i), interfaceText(one))
	}
}

// head is the first column of the lines of a list.
func head(what string, i int) string {
	if i > 0 {
		return ""
	}
	return what
}

func coreModule(i int, m inspect.CoreModule) string {
	text := fmt.Sprintf("%d: ", i)
	if m.Name != "" {
		text += clean(m.Name) + ", "
	}
	text += fmt.Sprintf("%s, %s, %s, %s", units.Bytes(m.Size), plural(m.Functions, "function"), plural(m.Imports, "import"), plural(m.Exports, "export"))
	if m.Instances != 1 {
		text += fmt.Sprintf(", instantiated %d times", m.Instances)
	}
	return text
}

func interfaceText(i inspect.Interface) string {
	text := clean(i.Name) + ": "
	if i.Kind != "instance" {
		return text + i.Kind
	}
	text += plural(i.Functions, "function")
	if i.Resources > 0 {
		text += ", " + plural(i.Resources, "resource")
	}
	if i.WASI == "" {
		text += ", not of WASI"
	}
	return text
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
