package component

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

func plan(t *testing.T, file []byte) *Plan {
	t.Helper()
	p, err := decode(t, file).Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The plan of a real component: which function of which module each import is, and which of the
// host, with its options.
func TestPlan(t *testing.T) {
	c := decode(t, hello(t))
	p := plan(t, hello(t))
	if len(p.Instances) != 4 {
		t.Fatalf("%d instances", len(p.Instances))
	}
	var order []string
	names := map[*Module]string{}
	for n, name := range c.ModuleNames() {
		names[c.Modules[n]] = name
	}
	host := map[string]string{}
	for _, i := range p.Instances {
		// The decoder was run twice: modules are compared by where they are.
		for m, name := range names {
			if m.Offset == i.Module.Offset {
				order = append(order, strings.TrimPrefix(name, "wit-component:"))
			}
		}
		for _, b := range i.Imports {
			switch {
			case (b.Host == nil) == (b.Export == nil):
				t.Errorf("%s %s is both or neither", b.Module, b.Name)
			case b.Export != nil && b.Export.Instance >= len(order)-1:
				t.Errorf("%s %s is of instance %d", b.Module, b.Name, b.Export.Instance)
			case b.Host != nil:
				o := b.Host.Options
				text := b.Host.Op.String()
				if o.Memory != nil {
					text += fmt.Sprintf(" memory %d.%s", o.Memory.Instance, o.Memory.Name)
				}
				if o.Realloc != nil {
					text += fmt.Sprintf(" realloc %d.%s", o.Realloc.Instance, o.Realloc.Name)
				}
				host[b.Host.Interface+"#"+b.Host.Name] = text
			}
		}
	}
	if want := []string{"wit-component-shim-module", "main", "adapter:wasi_snapshot_preview1", "wit-component-fixup"}; !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
	for name, want := range map[string]string{
		"wasi:io/streams@0.2.12#[method]output-stream.blocking-write-and-flush": "lower memory 1.memory",
		"wasi:io/streams@0.2.12#output-stream":                                  "resource.drop",
		"wasi:io/error@0.2.12#error":                                            "resource.drop",
		"wasi:cli/stdout@0.2.12#get-stdout":                                     "lower",
		"wasi:filesystem/preopens@0.2.12#get-directories":                       "lower memory 1.memory realloc 2.cabi_import_realloc",
	} {
		if host[name] != want {
			t.Errorf("%s: %q, want %q", name, host[name], want)
		}
	}
	if b := p.Instances[1].Imports[0]; b.Module != "wasi_snapshot_preview1" || b.Name != "fd_write" || b.Kind != format.KindFunction || *b.Export != (CoreExportRef{0, "0"}) {
		t.Errorf("the program's import is %+v of %+v", b, b.Export)
	}
	if len(p.Exports) != 1 {
		t.Fatalf("exports %+v", p.Exports)
	}
	if e := p.Exports[0]; e.Interface != "wasi:cli/run@0.2.12" || e.Name != "run" || e.Core != (CoreExportRef{2, "wasi:cli/run@0.2.12#run"}) || e.Type.Result.Kind != Result {
		t.Errorf("export %+v", e)
	}
}

// importing is a core module that imports one function () -> () by a name.
func importing(module, name string) []byte {
	return format.Join([]format.Section{
		format.NewSection(format.SectionType, []byte{2, 0x60, 0, 0, 0x60, 1, 0x7f, 0}),
		format.NewSection(format.SectionImport, cat([]byte{1}, text(module), text(name), []byte{format.KindFunction, 0})),
	})
}

// What only following names shows is refused with a text too.
func TestRefusedPlans(t *testing.T) {
	wasi := cat(section(sectionType, instanceType([]byte{1, 0x40, 0, 1, 0}, cat([]byte{4}, named("f"), []byte{1, 0}), []byte{1, 0x40, 1, 1, 'p', 0x79, 1, 0}, cat([]byte{4}, named("g"), []byte{1, 1}))),
		section(sectionImport, imported("wasi:cli/exit@0.2.0", 1)),
		section(sectionAlias, cat([]byte{1, 0, 2}, text("f")), cat([]byte{1, 0, 2}, text("g"))))
	client := func(name string) []byte { return raw(sectionCoreModule, importing("x", name)) }
	given := section(sectionCoreInstance, cat([]byte{0, 1}, vec(cat(text("x"), []byte{0x12, 1}))))
	list := func(name string, index byte) []byte {
		return section(sectionCoreInstance, cat([]byte{1}, vec(cat(text(name), []byte{0, index}))))
	}
	for name, c := range map[string]struct {
		file []byte
		want string // "" = there is a plan
	}{
		"lowered":              {whole(wasi, section(sectionCanon, []byte{1, 0, 1, 0}), list("f", 2), client("f"), given), ""},
		"other signature":      {whole(wasi, section(sectionCanon, []byte{1, 0, 2, 0}), list("f", 2), client("f"), given), `"f" from "x" with another signature than "g" of "wasi:cli/exit@0.2.0" has`},
		"not given":            {whole(client("f"), section(sectionCoreInstance, []byte{0, 1, 0})), `imports function "f" from "x", which it is not given`},
		"not in the list":      {whole(list("h", 0), client("f"), given), `imports function "f" from "x", which it is not given`},
		"from a module":        {whole(client("f1"), section(sectionCoreInstance, cat([]byte{0, 1}, vec(cat(text("x"), []byte{0x12, 0}))))), ""},
		"not exported":         {whole(client("f2"), section(sectionCoreInstance, cat([]byte{0, 1}, vec(cat(text("x"), []byte{0x12, 0}))))), `exports no function "f2"`},
		"another kind":         {whole(client("m0"), section(sectionCoreInstance, cat([]byte{0, 1}, vec(cat(text("x"), []byte{0x12, 0}))))), `exports no function "m0"`},
		"exports import":       {whole(wasi, section(sectionExport, exported("again", 5, 2))), `it exports "wasi:cli/exit@0.2.0", which it imports itself`},
		"exports its function": {whole(wasi, section(sectionExport, exported("again", 1, 1))), `it exports "again", which it imports itself`},
		"lifts the host":       {whole(wasi, section(sectionCanon, []byte{1, 0, 1, 0}, []byte{0, 0, 2, 0, 0}), section(sectionExport, exported("again", 1, 3))), "it lifts a function of the host"},
		"refused":              {build(), "exports neither"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(t, c.file).Plan()
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var refused *RefusedError
			if !errors.As(err, &refused) || !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A function that goes through more instances than anybody writes ends with a text: each level of
// components here passes it through two instances of the level below.
func TestPathsThroughInstancesAreBounded(t *testing.T) {
	level := build(section(sectionType, []byte{0x40, 0, 1, 0}), section(sectionImport, cat(named("f"), []byte{1, 0})), section(sectionExport, exported("g", 1, 0)))
	through := func(arg int, times int) []byte {
		var all [][]byte
		for n := range times {
			all = append(all, section(sectionInstance, cat([]byte{0, 0}, vec(cat(text("f"), []byte{1}, number(arg+n))))), section(sectionAlias, cat([]byte{1, 0}, number(n), text("g"))))
		}
		return cat(all...)
	}
	for range maxDepth - 2 {
		level = build(section(sectionType, []byte{0x40, 0, 1, 0}), section(sectionImport, cat(named("f"), []byte{1, 0})), raw(sectionComponent, level),
			through(0, 4), section(sectionExport, exported("g", 1, 4)))
	}
	file := build(coreModule, coreInstance, coreAliases, funcType, lifted, raw(sectionComponent, level), through(0, 1),
		section(sectionInstance, cat([]byte{1}, vec(cat(named("run"), []byte{1, 1})))), section(sectionExport, exported("wasi:cli/run@0.2.6", 5, 1)))
	if _, err := decode(t, file).Plan(); err == nil || !strings.Contains(err.Error(), "goes through more than") {
		t.Errorf("%v", err)
	}
}
