package merge

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// module is the module of one instance. Its index spaces, of which the imported items come first,
// say which index of the output each item has; they are known when it has been linked.
type module struct {
	name    string
	types   []uint32
	imports []importItem
	defined []uint32 // types of the functions that it defines, of the output
	bodies  [][]byte
	exports map[string]item
	start   *uint32

	ownTables   []table
	ownMemories []format.Limits
	globalBody  []byte // of the section
	elementBody []byte
	dataBody    []byte
	dataCount   int64 // -1 if it does not say
	sections    []format.Section

	functions, tables, memories, globals []uint32

	declared    []bool   // functions that occur outside of bodies
	hosts       []uint32 // what the imports bound to the host are
	functionsAt uint32   // where the functions that it defines start in the output

	elementsAt, dataAt  uint32 // the same of its segments
	elements, dataItems int    // how many those are
}

// item is an item of a module.
type item struct {
	kind  byte
	index uint32
}

type importItem struct {
	name     ImportName
	kind     byte
	function uint32 // type
	table    table
	memory   format.Limits
	global   globalType
}

// reader reads a part of a module. After an error it gives nothing but zeros.
type reader struct {
	format.Reader
	err error // what is wrong, nil if the part is cut short
}

func newReader(part []byte) *reader { return &reader{Reader: format.Reader{Rest: part}} }

// refuse ends reading with an error, unless it is nil or one came before.
func (r *reader) refuse(err error) {
	if err != nil && !r.Bad {
		r.err, r.Bad, r.Rest = err, true, nil
	}
}

// end returns what was wrong with a part that must end here.
func (r *reader) end(part string) error {
	if r.err == nil && (r.Bad || len(r.Rest) > 0) {
		return invalid("the %s is not well-formed", part)
	}
	return r.err
}

// text reads a name.
func (r *reader) text() string {
	b := r.Bytes()
	if !utf8.Valid(b) {
		r.refuse(invalid("a name is not UTF-8"))
	}
	return string(b)
}

// index reads an index into a space of that many items.
func (r *reader) index(count int, what string) uint32 {
	n := r.Number()
	if !r.Bad && uint64(n) >= uint64(count) {
		r.refuse(invalid("%s %d of %d", what, n, count))
		return 0
	}
	return n
}

// ranks are the places of the sections, by their ids; 0 = there is no such section.
var ranks = [...]int{
	format.SectionType: 1, format.SectionImport: 2, format.SectionFunction: 3, format.SectionTable: 4, format.SectionMemory: 5,
	format.SectionTag: 6, format.SectionGlobal: 7, format.SectionExport: 8, format.SectionStart: 9, format.SectionElement: 10,
	format.SectionDataCount: 11, format.SectionCode: 12, format.SectionData: 13,
}

// readModule reads the module of an instance.
func (m *merger) readModule(in Instance) (*module, error) {
	if !bytes.HasPrefix(in.Module, []byte("\x00asm\x01\x00\x00\x00")) {
		return nil, invalid("it is no core module")
	}
	sections, err := format.Split(in.Module)
	if err != nil {
		return nil, invalid("%v", err)
	}
	mod := &module{name: in.Name, exports: map[string]item{}, dataCount: -1, sections: sections}
	last := 0
	for _, s := range sections {
		if s.ID == format.SectionCustom {
			if name, _ := s.Custom(); name == "" && !bytes.HasPrefix(s.Body, []byte{0}) || !utf8.ValidString(name) {
				return nil, invalid("a custom section has no name")
			}
			continue
		}
		if int(s.ID) >= len(ranks) || ranks[s.ID] <= last {
			return nil, invalid("unexpected section %d", s.ID)
		}
		last = ranks[s.ID]
		r := newReader(s.Body)
		m.readSection(mod, s.ID, r)
		if err := r.end(sectionName(s.ID)); err != nil {
			return nil, err
		}
	}
	if len(mod.bodies) != len(mod.defined) {
		return nil, invalid("%d functions have %d bodies", len(mod.defined), len(mod.bodies))
	}
	return mod, nil
}

func sectionName(id byte) string {
	names := [...]string{"", "types", "imports", "functions", "tables", "memories", "globals", "exports", "start",
		"elements", "code", "data", "data count", "tags"}
	return names[id] + " section"
}

// readSection reads a section. Those that can only be understood when the module has been linked
// are kept for then.
func (m *merger) readSection(mod *module, id byte, r *reader) {
	keep := func() []byte {
		body := r.Rest
		r.Rest = nil
		return body
	}
	switch id {
	case format.SectionType:
		m.readTypes(mod, r)
	case format.SectionImport:
		mod.readImports(r)
	case format.SectionFunction:
		each(r, func() { mod.defined = append(mod.defined, mod.readType(r)) })
	case format.SectionTable:
		each(r, func() { mod.ownTables = append(mod.ownTables, r.table()) })
	case format.SectionMemory:
		each(r, func() { mod.ownMemories = append(mod.ownMemories, r.memoryLimits()) })
	case format.SectionTag:
		r.refuse(errExceptions)
	case format.SectionGlobal:
		mod.globalBody = keep()
	case format.SectionExport:
		mod.readExports(r)
	case format.SectionStart:
		n := r.Number()
		mod.start = &n
	case format.SectionElement:
		mod.elementBody = keep()
	case format.SectionDataCount:
		mod.dataCount = int64(r.Number())
	case format.SectionCode:
		if n := (&format.Reader{Rest: r.Rest}).Number(); uint64(n) != uint64(len(mod.defined)) {
			r.refuse(invalid("%d functions have %d bodies", len(mod.defined), n))
		}
		each(r, func() { mod.bodies = append(mod.bodies, r.Bytes()) })
	case format.SectionData:
		mod.dataBody = keep()
	}
}

// each reads a list.
func each(r *reader, read func()) {
	for n := range r.Number() {
		if n >= maxItems {
			r.refuse(ErrTooLarge)
		}
		if r.Bad {
			return
		}
		read()
	}
}

func (m *merger) readTypes(mod *module, r *reader) {
	each(r, func() {
		switch form := r.Octet(); form {
		case 0x60:
		case 0x4e, 0x4f, 0x50, 0x5e, 0x5f: // rec, sub, array, struct
			r.refuse(errGC)
		default:
			r.refuse(invalid("unknown form 0x%02x of a type", form))
		}
		params, results := r.Bytes(), r.Bytes()
		for _, list := range [][]byte{params, results} {
			for _, t := range list {
				r.refuse(checkValueType(t))
			}
		}
		if !r.Bad {
			mod.types = append(mod.types, m.typeIndex(encodeType(format.FuncType{Params: params, Results: results})))
		}
	})
}

// encodeType encodes the type of a function.
func encodeType(t format.FuncType) []byte {
	out := binary.AppendUvarint([]byte{0x60}, uint64(len(t.Params)))
	out = binary.AppendUvarint(append(out, t.Params...), uint64(len(t.Results)))
	return append(out, t.Results...)
}

// readType reads the index of a type.
func (mod *module) readType(r *reader) uint32 {
	if n := r.index(len(mod.types), "type"); !r.Bad {
		return mod.types[n]
	}
	return 0
}

func (mod *module) readImports(r *reader) {
	each(r, func() {
		i := importItem{name: ImportName{r.text(), r.text()}, kind: r.Octet()}
		switch i.kind {
		case format.KindFunction:
			i.function = mod.readType(r)
		case format.KindTable:
			i.table = r.table()
		case format.KindMemory:
			i.memory = r.memoryLimits()
		case format.KindGlobal:
			i.global = r.globalType()
		case format.KindTag:
			r.refuse(errExceptions)
		default:
			r.refuse(invalid("unknown kind %d of an import", i.kind))
		}
		mod.imports = append(mod.imports, i)
	})
}

func (mod *module) readExports(r *reader) {
	each(r, func() {
		name := r.text()
		i := item{kind: r.Octet(), index: r.Number()}
		if i.kind == format.KindTag {
			r.refuse(errExceptions)
		} else if i.kind > format.KindTag {
			r.refuse(invalid("unknown kind %d of an export", i.kind))
		}
		if _, twice := mod.exports[name]; twice {
			r.refuse(invalid("it exports %q twice", name))
		}
		if !r.Bad {
			mod.exports[name] = i
		}
	})
}
