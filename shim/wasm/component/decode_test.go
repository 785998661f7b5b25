package component

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func hello(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/hello.wasm")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decode(t testing.TB, file []byte) *Component {
	t.Helper()
	c, err := Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A component of a common toolchain: what wasm-tools (print, objdump, component wit) says of it.
func TestRealComponent(t *testing.T) {
	file := hello(t)
	c := decode(t, file)
	if len(c.Modules) != 4 || len(c.Components) != 1 || len(c.Exports) != 1 || c.Size != len(file) {
		t.Errorf("%d modules, %d components, %d exports, %d bytes", len(c.Modules), len(c.Components), len(c.Exports), c.Size)
	}
	var imports []string
	for _, i := range c.Imports {
		imports = append(imports, fmt.Sprintf("%s %d", i.Name, len(i.Type.Exports)))
	}
	if want := helloImports(); !slices.Equal(imports, want) {
		t.Errorf("imports %q\nwant %q", imports, want)
	}
	names := c.ModuleNames()
	if names[0] != "main" || names[1] != "wit-component:adapter:wasi_snapshot_preview1" || names[2] != "wit-component-shim-module" || names[3] != "wit-component-fixup" {
		t.Errorf("names %v", names)
	}
	if c.World() != "wasi:cli/command@0.2.12" || len(c.Refusals()) != 0 {
		t.Errorf("world %q, refused %q", c.World(), c.Refusals())
	}
}

// helloImports are the imports of testdata/hello.wasm, each with the number of what its instance
// exports (types, resources and functions).
func helloImports() []string {
	return strings.Split(strings.TrimSpace(`
wasi:io/error@0.2.12 1
wasi:io/streams@0.2.12 8
wasi:cli/stdin@0.2.12 2
wasi:cli/stdout@0.2.12 2
wasi:cli/stderr@0.2.12 2
wasi:clocks/wall-clock@0.2.12 1
wasi:filesystem/types@0.2.12 14
wasi:filesystem/preopens@0.2.12 2
`), "\n")
}

// What a lowered function of a real component is: named by its import, with its core type and its
// options.
func TestLoweredFunctions(t *testing.T) {
	c := decode(t, hello(t))
	seen := false
	for _, canon := range c.Canons {
		if canon.Op == ResourceDrop && canon.Type.Owner == nil {
			t.Errorf("the resource at byte %d has no owner", canon.Type.Offset)
		}
		if canon.Op != Lower || canon.Func.Name != "[method]output-stream.blocking-write-and-flush" {
			continue
		}
		seen = true
		params, results := canon.Func.Type.CoreSignature(false, canon.Options)
		if got := fmt.Sprintf("%x %x", params, results); got != "7f7f7f7f " {
			t.Errorf("signature %s", got)
		}
		if from := canon.Func.Instance.Import; from == nil || from.Name != "wasi:io/streams@0.2.12" {
			t.Errorf("it is of %+v", from)
		}
		if m := canon.Options.Memory; m == nil || m.Name != "memory" || m.Instance.Module == nil {
			t.Errorf("its memory is %+v", m)
		}
	}
	if !seen {
		t.Error("it is not there")
	}
}

// Aliases are followed: of a list of exports to what is listed, of an instance to its export, of an
// outer scope to the type itself, and through an instance of a component.
func TestAliases(t *testing.T) {
	inner := raw(sectionComponent, build(
		section(sectionType, []byte{0x40, 0, 1, 0}),
		section(sectionImport, cat(named("f"), []byte{1, 0})),
		section(sectionAlias, []byte{3, 2, 1, 0}), // type 0 of the outer component
		section(sectionExport, exported("g", 1, 0), exported("t", 3, 1)),
	))
	c := decode(t, whole(inner,
		section(sectionInstance, cat([]byte{0, 0}, vec(cat(text("f"), []byte{1, 0})))),
		section(sectionAlias, cat([]byte{1, 0, 2}, text("g")), cat([]byte{3, 0, 2}, text("t"))),
		section(sectionExport, exported("again", 1, 1), exported("type", 3, 1)),
		section(sectionCoreInstance, cat([]byte{1}, vec(cat(text("x"), []byte{0, 1})))),
		section(sectionAlias, cat([]byte{0, 0, 1, 1}, text("x"))),
		section(sectionCanon, []byte{0, 0, 2, 0, 0}),
	))
	g := c.Exports[1].Item.Def.(*Func)
	if g.Instance != c.Instances[1] || g.Name != "g" {
		t.Errorf("the export is %+v", g)
	}
	if arg, ok := g.Instance.Arg("f"); !ok || arg.Def.(*Func).Canon != c.Canons[0] {
		t.Errorf("the argument is %+v", arg)
	}
	if c.Exports[2].Item.Def != any(c.Types[0]) {
		t.Error("the type is another one")
	}
	if f := c.Canons[1].Core; f.Name != "f1" || f.Instance != c.CoreInstances[0] {
		t.Errorf("the function is %+v", f)
	}
}

func TestCoreSignatures(t *testing.T) {
	// type 0: list<u8>; 1: result<u64, string>; 2: variant of f32, u64 and a tuple; 3: 17 of u8
	c := decode(t, build(section(sectionType,
		[]byte{0x70, 0x7d}, []byte{0x6a, 1, 0x77, 1, 0x73},
		cat([]byte{0x71}, vec(cat(text("a"), []byte{1, 0x76, 0}), cat(text("b"), []byte{1, 0x79, 0}), cat(text("c"), []byte{0, 0}))),
		[]byte{0x67, 0x7d, 17},
		cat([]byte{0x40}, vec(cat(text("p"), number(0)), cat(text("q"), number(2))), []byte{0}, number(1)),
		cat([]byte{0x43}, vec(cat(text("p"), number(0)), cat(text("q"), number(1))), []byte{0, 0x77}),
		cat([]byte{0x40}, vec(cat(text("p"), number(3))), []byte{1, 0}),
	)))
	for _, x := range []struct {
		of   int
		lift bool
		o    Options
		want string
	}{
		{4, false, Options{}, "7f7f7f7f7f "}, // list, case, f32 or u32, and where the result goes
		{4, true, Options{}, "7f7f7f7f 7f"},
		{5, false, Options{Async: true}, "7f7f 7f"}, // five are one too many for an async call
		{5, false, Options{}, "7f7f7f7e7f 7e"},
		{5, true, Options{Async: true, Callback: &CoreItem{}}, "7f7f7f7e7f 7f"},
		{5, true, Options{Async: true}, "7f7f7f7e7f "},
		{6, false, Options{}, "7f "},
	} {
		params, results := c.Types[x.of].CoreSignature(x.lift, x.o)
		if got := fmt.Sprintf("%x %x", params, results); got != x.want {
			t.Errorf("type %d, lift %v, %+v: %q, want %q", x.of, x.lift, x.o, got, x.want)
		}
	}
}

// Every canonical operation is decoded to its end, and has its name.
func TestEveryOperation(t *testing.T) {
	parts := map[rune][]byte{
		't': {1}, 'r': {2}, 'R': {0, 0x7d}, 'o': {2, 6, 3, 0}, 'a': {1}, 'c': {1}, 's': {1}, 'm': {0}, 'v': {0x7f}, 'n': {3}, 'f': {0}, 'b': {0},
	}
	for op, known := range operations() {
		definition := []byte{byte(op)}
		for _, part := range known.parts {
			definition = append(definition, parts[part]...)
		}
		c := decode(t, build(coreModule, coreInstance, coreAliases, section(sectionAlias, cat([]byte{0, 1, 1, 0}, text("t"))),
			section(sectionCoreType, []byte{0x60, 0, 0}), funcType, section(sectionType, []byte{0x66, 1, 0x7d}, []byte{0x3f, 0x7f, 0}),
			section(sectionCanon, definition)))
		if got := c.Canons[0]; got.Op != op || op.String() != known.name || strings.Contains(known.parts, "o") != got.Options.Async {
			t.Errorf("%s: %+v", known.name, got)
		}
	}
	if len(operations()) != 46 {
		t.Errorf("%d operations", len(operations()))
	}
}

func TestNotValid(t *testing.T) {
	deep := build()
	for range maxDepth + 1 {
		deep = build(raw(sectionComponent, deep))
	}
	types := [][]byte{{0x70, 0x7d}}
	for i := range maxTypeDepth + 1 {
		types = append(types, cat([]byte{0x70}, typeIndex(i)))
	}
	many := slices.Repeat([][]byte{{0x70, 0x7d}}, maxDefinitions+1)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"nothing":          {nil, "at byte 0: it is not WebAssembly"},
		"module":           {module(0, 0), "it is a core module"},
		"version":          {[]byte("\x00asm\x0a\x00\x01\x00"), "version 0x000a, and 0x000d is known"},
		"section":          {build(raw(13, nil)), "at byte 8: section 13 is not known"},
		"cut":              {build([]byte{1, 100, 0}), "at byte 9: a section is longer"},
		"count":            {build(raw(sectionType, number(1000))), "1000 definitions in 0 bytes"},
		"left":             {build(raw(sectionType, cat(vec([]byte{0x70, 0x7d}), []byte{1, 2}))), "a section has 2 bytes too many"},
		"no module":        {build(raw(sectionCoreModule, build())), "a core module is not a component"},
		"index":            {build(coreInstance), "core module 0 is not defined there: there are 0"},
		"kind":             {build(section(sectionType, []byte{0x40, 0, 1, 0}, []byte{0x70, 0})), "a func is no type of values"},
		"own of no":        {build(section(sectionType, []byte{0x70, 0x7d}, []byte{0x69, 0})), "a list is not a resource"},
		"resource":         {build(section(sectionType, instanceType([]byte{1, 0x3f, 0x7f, 0}))), "a type defines a resource"},
		"operation":        {build(section(sectionCanon, []byte{0x60})), "canonical operation 0x60 is not known"},
		"option":           {build(coreModule, coreInstance, coreAliases, funcType, section(sectionCanon, []byte{0, 0, 0, 1, 10, 0})), "canonical option 0x0a is not known"},
		"option twice":     {build(coreModule, coreInstance, coreAliases, funcType, section(sectionCanon, []byte{0, 0, 0, 2, 0, 1, 0})), "option 0x01 is given twice"},
		"outer":            {build(section(sectionAlias, []byte{3, 2, 1, 0})), "an alias goes out by 1, and it is 0 deep"},
		"outer function":   {build(section(sectionAlias, []byte{1, 2, 0, 0})), "an alias of form 0x02 for a function"},
		"no such export":   {build(funcType, section(sectionType, instanceType()), section(sectionImport, imported("i", 1)), section(sectionAlias, cat([]byte{1, 0, 0}, text("f")))), `exports no function "f"`},
		"no such core one": {build(section(sectionCoreInstance, []byte{1, 0}), section(sectionAlias, cat([]byte{0, 0, 1, 0}, text("f")))), `exports no core function "f"`},
		"exported twice":   {build(funcType, section(sectionExport, exported("t", 3, 0), exported("t", 3, 0))), `exports "t" twice`},
		"name":             {build(section(sectionImport, cat([]byte{0, 1, 0xff}, []byte{5, 0}))), "a name is not UTF-8"},
		"long name":        {build(section(sectionImport, named(strings.Repeat("x", maxName+1)))), "a name has 100001 bytes"},
		"empty record":     {build(section(sectionType, []byte{0x72, 0})), "a record without parts"},
		"deep":             {deep, "more than 16 deep"},
		"deep type":        {build(section(sectionType, types...)), "a type is more than 100 deep"},
		"many":             {build(section(sectionType, many...)), "more than 100000 definitions"},
		"many results":     {whole(raw(sectionStart, []byte{0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})), "more than 100000 definitions"},
		"core type":        {build(section(sectionCoreType, []byte{0x5f, 0})), "core type 0x5f is not known"},
		"value":            {build(section(sectionType, []byte{0x70, 0x50})), "a type of values is not known"},
		"attribute":        {build(section(sectionImport, cat([]byte{2}, text("x"), []byte{1, 9}))), "attribute 0x09 of a name is not known"},
		"declaration":      {build(section(sectionType, instanceType([]byte{3}))), "declaration 0x03 is not known"},
		"argument twice":   {whole(raw(sectionComponent, build()), section(sectionInstance, cat([]byte{0, 0}, vec(cat(text("f"), []byte{1, 0}), cat(text("f"), []byte{1, 0}))))), `"f" is given twice`},
		"exports a core":   {whole(section(sectionExport, cat(named("f"), []byte{0, 0, 0, 0}))), "a component exports a core function"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(c.file)
			var as *Error
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &as) || !errdefs.IsInvalidArgument(err) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// Types that double at each step are not walked through, and neither are instances that are made of
// each other.
func TestHostileShapesTakeNoTime(t *testing.T) {
	doubling := [][]byte{cat([]byte{0x72}, vec(cat(text("a"), []byte{0x77})))}
	for i := range maxTypeDepth - 1 {
		doubling = append(doubling, cat([]byte{0x72}, vec(cat(text("a"), typeIndex(i)), cat(text("b"), typeIndex(i)))))
	}
	inner := build(section(sectionType, instanceType()), section(sectionImport, imported("i", 0)), section(sectionExport, exported("e", 5, 0)))
	instances := [][]byte{cat([]byte{0, 0}, vec(cat(text("i"), []byte{5, 0})))}
	var aliases [][]byte
	for i := range 5000 {
		instances = append(instances, cat([]byte{0, 0}, vec(cat(text("i"), []byte{5}, number(i+1)))))
		aliases = append(aliases, cat([]byte{5, 0}, number(i+1), text("e")))
	}
	for name, file := range map[string][]byte{
		"types": build(section(sectionType, doubling...)),
		"instances": build(section(sectionType, instanceType()), section(sectionImport, imported("i", 0)), raw(sectionComponent, inner),
			section(sectionInstance, instances...), section(sectionAlias, aliases...)),
	} {
		start := time.Now()
		decode(t, file).Refusals()
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s: %v for %d bytes", name, took, len(file))
		}
	}
}

// Wherever it is cut or changed, a component is decoded or gets an Error.
func TestDamaged(t *testing.T) {
	for _, file := range [][]byte{hello(t), whole()} {
		body := file[:min(len(file), 3000)]
		for i := range body {
			try(t, body[:i])
			for _, with := range []byte{0, 1, 0x7f, 0xff} {
				changed := slices.Clone(body)
				changed[i] = with
				try(t, changed)
			}
		}
	}
}

// try decodes and looks at all that a component is asked for.
func try(t *testing.T, file []byte) {
	t.Helper()
	c, err := Decode(file)
	if err != nil {
		var as *Error
		if !errors.As(err, &as) || as.Offset < 0 || as.Offset > len(file) {
			t.Errorf("%v of %d bytes", err, len(file))
		}
		return
	}
	c.Plan()
	c.ModuleNames()
	c.World()
	for _, canon := range c.Canons {
		if canon.Op == Lower {
			canon.Func.Type.CoreSignature(false, canon.Options)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(hello(f))
	f.Add(whole())
	for op, known := range operations() {
		f.Add(whole(section(sectionCanon, append([]byte{byte(op)}, make([]byte, len(known.parts))...))))
	}
	f.Fuzz(func(t *testing.T, file []byte) { try(t, file) })
}
