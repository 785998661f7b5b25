package merge

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// generator makes sets of modules that are linked to each other. They always end: every function
// takes one of the fuel that instance 0 has.
type generator struct {
	*rand.Rand
	in       Input
	items    []offered
	memoryAt int  // the instance that defines the memory, -1 for none yet
	calm     bool // nothing changes tables
}

// offered is an export of an instance.
type offered struct {
	Export
	kind     byte
	function string // encoded type
	global   globalType
	table    table
	small    bool // an immutable i32 that is small, for offsets
	own      bool // a function that is not one of another instance
}

// signatures are the types of the functions.
var signatures = []format.FuncType{
	{}, {Params: []byte{typeI32}, Results: []byte{typeI32}}, {Params: []byte{typeI32, typeI64}, Results: []byte{typeI32}},
	{Results: []byte{typeI32}}, {Params: []byte{typeI64}, Results: []byte{typeI64}}, {Params: []byte{typeF64, typeI32}, Results: []byte{typeF64}},
	{Params: []byte{typeI32}, Results: []byte{typeI32, typeI64}}, {Params: []byte{typeI32, typeI32, typeI32}},
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// generate makes a set of modules.
func generate(seed uint64) Input {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), memoryAt: -1}
	g.calm = g.chance(50)
	g.module()
	shim := -1
	if g.chance(50) {
		shim = g.shim()
	}
	for range 1 + g.IntN(5) {
		g.module()
	}
	if shim >= 0 {
		g.fixup(shim)
	}
	names := map[string]bool{}
	for _, o := range g.items {
		name := fmt.Sprintf("%d.%s", o.Instance, o.Name)
		if o.kind == format.KindTable && (g.calm || g.chance(80)) || names[name] {
			continue
		}
		names[name] = true
		g.in.Exports = append(g.in.Exports, FinalExport{Name: name, Of: o.Export})
	}
	return g.in
}

// written is a module that is being made.
type written struct {
	*generator
	types     []format.FuncType
	functions []format.FuncType
	globals   []offered
	tables    []table
	memory    bool
	imported  int // functions
	imports   [][]byte
	sources   map[ImportName]Source
	fuel      uint32
	passive   []byte // data segments
	elements  []byte // types of the segments
	refs      []uint32
}

func vector(list [][]byte) []byte {
	out := binary.AppendUvarint(nil, uint64(len(list)))
	for _, l := range list {
		out = append(out, l...)
	}
	return out
}

func (w *written) typeOf(t format.FuncType) uint64 {
	var fits []int
	for n := range w.types {
		if string(encodeType(w.types[n])) == string(encodeType(t)) {
			fits = append(fits, n)
		}
	}
	return uint64(fits[w.IntN(len(fits))])
}

// module adds an instance of a new module.
func (g *generator) module() {
	w := &written{generator: g, sources: map[ImportName]Source{}}
	at := len(g.in.Instances)
	for _, n := range g.Perm(len(signatures)) {
		w.types = append(w.types, signatures[n])
		if g.chance(20) {
			w.types = append(w.types, signatures[n])
		}
	}
	w.importAll(at)
	own := w.define(at)
	sections := []format.Section{}
	add := func(id byte, body []byte) {
		if len(body) > 0 && body[0] != 0 || id == format.SectionStart {
			sections = append(sections, format.NewSection(id, body))
		}
	}
	var types, functions, bodies [][]byte
	for _, t := range w.types {
		types = append(types, encodeType(t))
	}
	for _, t := range w.functions[w.imported:] {
		functions = append(functions, binary.AppendUvarint(nil, w.typeOf(t)))
	}
	exports := w.exportAll(at)
	elements, data := w.segments()
	for _, t := range w.functions[w.imported:] {
		b := w.body(t)
		bodies = append(bodies, append(binary.AppendUvarint(nil, uint64(len(b))), b...))
	}
	add(format.SectionType, vector(types))
	add(format.SectionImport, vector(w.imports))
	add(format.SectionFunction, vector(functions))
	add(format.SectionTable, vector(own[format.KindTable]))
	add(format.SectionMemory, vector(own[format.KindMemory]))
	add(format.SectionGlobal, vector(own[format.KindGlobal]))
	add(format.SectionExport, vector(exports))
	for n, t := range w.functions {
		if n >= w.imported && len(t.Params)+len(t.Results) == 0 && g.chance(20) {
			add(format.SectionStart, binary.AppendUvarint(nil, uint64(n)))
			break
		}
	}
	add(format.SectionElement, vector(elements))
	add(format.SectionDataCount, binary.AppendUvarint(nil, uint64(len(data))))
	add(format.SectionCode, vector(bodies))
	add(format.SectionData, vector(data))
	if g.chance(50) {
		add(format.SectionCustom, append([]byte("\x04name\x01"), 6, 1, byte(w.imported), 3, 'f', 'u', 'n'))
	}
	g.in.Instances = append(g.in.Instances, Instance{fmt.Sprintf("i%d", at), format.Join(sections), w.sources})
}

// importOf adds an import.
func (w *written) importOf(source Source, kind byte, what ...byte) {
	name := ImportName{fmt.Sprintf("m%d", w.IntN(3)), fmt.Sprintf("n%d", len(w.imports))}
	w.sources[name] = source
	w.imports = append(w.imports, append(append(appendText(appendText(nil, name.Module), name.Name), kind), what...))
}

func (w *written) importAll(at int) {
	function := func(source Source, t format.FuncType) {
		w.importOf(source, format.KindFunction, binary.AppendUvarint(nil, w.typeOf(t))...)
		w.functions = append(w.functions, t)
	}
	for range w.IntN(3) {
		t := signatures[w.IntN(len(signatures))]
		function(Host{"host", fmt.Sprintf("h%x.%d", encodeType(t), w.IntN(2)), t}, t)
	}
	if w.chance(10) {
		function(Trap{}, signatures[w.IntN(len(signatures))])
	}
	if w.chance(30) {
		value := uint64(w.IntN(4))
		w.importOf(Constant{value}, format.KindGlobal, typeI32, 0)
		w.globals = append(w.globals, offered{global: globalType{typeI32, false}, small: true})
	}
	for _, o := range w.items {
		isFuel := o.Instance == 0 && o.Name == "fuel"
		if !isFuel && w.chance(60) && o.kind != format.KindMemory {
			continue
		}
		switch o.kind {
		case format.KindFunction:
			function(o.Export, signatureOf(o.function))
		case format.KindTable:
			w.importOf(o.Export, o.kind, appendLimits([]byte{o.table.element}, format.Limits{Min: o.table.limits.Min - uint64(w.IntN(2))})...)
			w.tables = append(w.tables, o.table)
		case format.KindMemory:
			if !w.memory && w.chance(80) {
				w.importOf(o.Export, o.kind, 0, 1)
				w.memory = true
			}
		case format.KindGlobal:
			mutable := byte(0)
			if o.global.mutable {
				mutable = 1
			}
			if isFuel {
				w.fuel = uint32(len(w.globals))
			}
			w.importOf(o.Export, o.kind, o.global.value, mutable)
			w.globals = append(w.globals, o)
		}
	}
	w.imported = len(w.functions)
}

func signatureOf(encoded string) format.FuncType {
	for _, t := range signatures {
		if string(encodeType(t)) == encoded {
			return t
		}
	}
	panic("unknown signature")
}

// define decides what the module defines, and encodes it except for functions.
func (w *written) define(at int) map[byte][][]byte {
	own := map[byte][][]byte{}
	for range 2 + w.IntN(5) {
		w.functions = append(w.functions, signatures[w.IntN(len(signatures))])
	}
	for range w.IntN(3) {
		t := table{typeFuncref, format.Limits{Min: uint64(8 + w.IntN(5))}}
		if w.chance(30) {
			t.limits.Flags, t.limits.Max = format.LimitsHaveMax, t.limits.Min+1
		}
		own[format.KindTable] = append(own[format.KindTable], appendLimits([]byte{t.element}, t.limits))
		w.tables = append(w.tables, t)
	}
	if !w.memory && w.memoryAt < 0 && w.chance(60) {
		w.memory, w.memoryAt = true, at
		own[format.KindMemory] = [][]byte{appendLimits(nil, format.Limits{Flags: format.LimitsHaveMax, Min: 1, Max: 3})}
	}
	before := len(w.globals)
	if at == 0 {
		w.globals = append(w.globals, offered{global: globalType{typeI32, true}})
		own[format.KindGlobal] = append(own[format.KindGlobal], []byte{typeI32, 1, opI32Const, 0xe4, 0, opEnd})
		w.fuel = uint32(before)
	}
	for range w.IntN(4) {
		t := globalType{[]byte{typeI32, typeI64, typeF64, typeFuncref}[w.IntN(4)], w.chance(50)}
		mutable := byte(0)
		if t.mutable {
			mutable = 1
		}
		expression, small := w.initial(t.value, before)
		own[format.KindGlobal] = append(own[format.KindGlobal], append([]byte{t.value, mutable}, expression...))
		w.globals = append(w.globals, offered{global: t, small: small && !t.mutable})
	}
	return own
}

// initial makes an initial value. It may be that of an imported global, of which there are some.
func (w *written) initial(value byte, imported int) (expression []byte, small bool) {
	for n, o := range w.globals[:imported] {
		if o.global == (globalType{value, false}) && w.chance(50) {
			expression = binary.AppendUvarint([]byte{opGlobalGet}, uint64(n))
			if value == typeI32 && w.chance(30) {
				return append(expression, opI32Const, 1, opI32Add, opEnd), o.small
			}
			return append(expression, opEnd), o.small
		}
	}
	switch {
	case value == typeI32:
		return []byte{opI32Const, byte(w.IntN(4)), opEnd}, true
	case value == typeI64:
		return []byte{opI64Const, 0xff, byte(w.IntN(128)), opEnd}, false
	case value == typeF64:
		return []byte{opF64Const, 0, 0, 0, 0, 0, 0, byte(w.IntN(256)), 0x40, opEnd}, false
	case w.chance(50):
		return []byte{opRefNull, typeFuncref, opEnd}, false
	}
	f := uint32(w.IntN(len(w.functions)))
	w.refs = append(w.refs, f)
	return append(binary.AppendUvarint([]byte{opRefFunc}, uint64(f)), opEnd), false
}

// exportAll exports much of what the module has, also what it imports.
func (w *written) exportAll(at int) (all [][]byte) {
	export := func(name string, n int, o offered) {
		o.Export = Export{at, name}
		w.items = append(w.items, o)
		all = append(all, binary.AppendUvarint(append(appendText(nil, name), o.kind), uint64(n)))
	}
	for n, t := range w.functions {
		if w.chance(60) {
			w.refs = append(w.refs, uint32(n))
			export(fmt.Sprintf("f%d", n), n, offered{kind: format.KindFunction, function: string(encodeType(t)), own: n >= w.imported})
		}
	}
	for n, t := range w.tables {
		if w.chance(80) {
			export(fmt.Sprintf("t%d", n), n, offered{kind: format.KindTable, table: t})
		}
	}
	if w.memory {
		export("memory", 0, offered{kind: format.KindMemory})
	}
	for n, o := range w.globals {
		name := fmt.Sprintf("g%d", n)
		if at == 0 && n == int(w.fuel) {
			name = "fuel"
		} else if n == int(w.fuel) || w.chance(20) {
			continue
		}
		o.kind = format.KindGlobal
		export(name, n, o)
	}
	return all
}

// offset makes the offset of an active segment.
func (w *written) offset() []byte {
	for n, o := range w.globals {
		if o.small && o.kind != 0 && w.chance(40) { // imported
			return append(binary.AppendUvarint([]byte{opGlobalGet}, uint64(n)), opEnd)
		}
	}
	return []byte{opI32Const, byte(w.IntN(3)), opEnd}
}

func (w *written) segments() (elements, data [][]byte) {
	for range w.IntN(4) {
		kind, count := w.IntN(8), w.IntN(3)
		head := []byte{byte(kind)}
		if kind&elementIsNotActive == 0 {
			if len(w.tables) == 0 {
				continue
			}
			if kind&elementIsExplicit != 0 {
				head = append(head, byte(w.IntN(len(w.tables))))
			}
			head = append(head, w.offset()...)
		}
		if kind&(elementIsNotActive|elementIsExplicit) != 0 {
			head = append(head, map[bool]byte{false: 0, true: typeFuncref}[kind&elementIsExpressed != 0])
		}
		head = append(head, byte(count))
		for range count {
			f := uint32(w.IntN(len(w.functions)))
			switch {
			case kind&elementIsExpressed == 0:
				head = append(head, byte(f))
				w.refs = append(w.refs, f)
			case w.chance(30):
				head = append(head, opRefNull, typeFuncref, opEnd)
			default:
				head = append(head, opRefFunc, byte(f), opEnd)
				w.refs = append(w.refs, f)
			}
		}
		elements = append(elements, head)
		w.elements = append(w.elements, byte(kind))
	}
	for range w.IntN(4) {
		content := []byte{3, byte(w.IntN(256)), byte(w.IntN(256)), byte(w.IntN(256))}
		switch {
		case w.chance(40):
			w.passive = append(w.passive, byte(len(data)))
			data = append(data, append([]byte{1}, content...))
		case w.memory:
			data = append(data, append(append([]byte{0}, w.offset()...), content...))
		}
	}
	return elements, data
}

// shimSize is the number of functions of a shim, one of each signature.
var shimSize = len(signatures)

// shim adds what wit-component adds: a module that calls functions which come later through a
// table.
func (g *generator) shim() int {
	w := &written{generator: g, types: signatures, tables: []table{{typeFuncref, format.Limits{Min: uint64(shimSize)}}}}
	at := len(g.in.Instances)
	var types, functions, exports, bodies [][]byte
	for n, t := range signatures {
		c := &coder{written: w, code: []byte{0}}
		for p := range t.Params {
			c.op(opLocalGet, byte(p))
		}
		c.op(opI32Const, byte(n), opCallIndirect, byte(n), 0, opEnd)
		types, functions = append(types, encodeType(t)), append(functions, []byte{byte(n)})
		bodies = append(bodies, append([]byte{byte(len(c.code))}, c.code...))
		name := fmt.Sprint(n)
		exports = append(exports, append(appendText(nil, name), format.KindFunction, byte(n)))
		g.items = append(g.items, offered{Export: Export{at, name}, kind: format.KindFunction, function: string(encodeType(t))})
	}
	exports = append(exports, append(appendText(nil, "$imports"), format.KindTable, 0))
	if g.chance(20) { // others may change it
		g.items = append(g.items, offered{Export: Export{at, "$imports"}, kind: format.KindTable, table: w.tables[0]})
	}
	g.in.Instances = append(g.in.Instances, Instance{"shim", format.Join([]format.Section{
		format.NewSection(format.SectionType, vector(types)), format.NewSection(format.SectionFunction, vector(functions)),
		format.NewSection(format.SectionTable, append([]byte{1}, appendLimits([]byte{typeFuncref}, w.tables[0].limits)...)),
		format.NewSection(format.SectionExport, vector(exports)), format.NewSection(format.SectionCode, vector(bodies)),
	}), nil})
	return at
}

// fixup adds the module that fills the table of a shim, or most of it.
func (g *generator) fixup(shim int) {
	w := &written{generator: g, types: signatures, sources: map[ImportName]Source{}}
	var elements [][]byte
	for n, t := range signatures {
		for _, o := range g.items {
			if o.own && o.function == string(encodeType(t)) && g.chance(50) {
				if g.chance(10) {
					n = g.IntN(shimSize) // of another type
				}
				w.importOf(o.Export, format.KindFunction, byte(w.typeOf(t)))
				elements = append(elements, []byte{0, opI32Const, byte(n), opEnd, 1, byte(len(w.imports) - 1)})
				break
			}
		}
	}
	w.importOf(Export{shim, "$imports"}, format.KindTable, appendLimits([]byte{typeFuncref}, format.Limits{Min: uint64(shimSize)})...)
	var types [][]byte
	for _, t := range signatures {
		types = append(types, encodeType(t))
	}
	g.in.Instances = append(g.in.Instances, Instance{"fixup", format.Join([]format.Section{
		format.NewSection(format.SectionType, vector(types)), format.NewSection(format.SectionImport, vector(w.imports)),
		format.NewSection(format.SectionElement, vector(elements)),
	}), w.sources})
}
