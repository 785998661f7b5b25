package merge

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// write encodes the output.
func (m *merger) write() ([]byte, error) {
	startBody := m.startBody()
	startFunction, types := uint32(len(m.functions)), slices.Clone(m.functions[len(m.hosts):])
	if len(m.starts) == 1 && m.starts[0].element < 0 && m.starts[0].data < 0 {
		startFunction, startBody = m.alias(m.starts[0].function), nil // one function needs no other to call it
	}
	if startBody != nil {
		types = append(types, m.typeIndex([]byte(startType)))
	}
	names := m.names(startBody != nil)
	size := len(m.code) + len(names) + 1<<16
	for _, d := range m.data {
		size += len(d.bytes) + 16
	}
	o := output{bytes: append(make([]byte, 0, size), "\x00asm\x01\x00\x00\x00"...)}
	o.section(format.SectionType, listOf(m.typeList, func(out []byte, t string) []byte { return append(out, t...) }))
	o.section(format.SectionImport, listOf(m.hosts, m.appendHost))
	o.section(format.SectionFunction, listOf(types, appendIndex))
	o.section(format.SectionTable, listOf(m.tables, func(out []byte, t table) []byte { return appendLimits(append(out, t.element), t.limits) }))
	o.section(format.SectionMemory, listOf(m.memories, func(out []byte, t memory) []byte { return appendLimits(out, t.limits) }))
	o.section(format.SectionGlobal, listOf(m.globals, m.appendGlobal))
	o.section(format.SectionExport, listOf(m.exports, m.appendExport))
	if len(m.starts) > 0 {
		o.section(format.SectionStart, appendIndex(nil, startFunction))
	}
	o.section(format.SectionElement, m.elementSection())
	if len(m.data) > 0 && (m.usesData || slices.ContainsFunc(m.data, func(d data) bool { return d.mode == late })) {
		o.section(format.SectionDataCount, appendIndex(nil, uint32(len(m.data))))
	}
	o.code(m, uint64(len(types)), startBody)
	o.data(m.data)
	if names != nil {
		o.section(format.SectionCustom, names)
	}
	if len(o.bytes) > maxSize {
		return nil, fmt.Errorf("the merged module has %d MiB, more than %d: %w", len(o.bytes)>>20, maxSize>>20, ErrTooLarge)
	}
	return o.bytes, nil
}

// output is the module that is written.
type output struct{ bytes []byte }

// head starts a section.
func (o *output) head(id byte, size int) {
	o.bytes = binary.AppendUvarint(append(o.bytes, id), uint64(size))
}

// section appends a section, unless it has no content.
func (o *output) section(id byte, body []byte) {
	if body != nil {
		o.head(id, len(body))
		o.bytes = append(o.bytes, body...)
	}
}

// code appends the code section: the bodies of the instances' functions, of the traps, and of the
// start function if there is one of the output.
func (o *output) code(m *merger, count uint64, startBody []byte) {
	if count == 0 {
		return
	}
	var more []byte
	for range m.traps {
		more = append(more, 3, 0, opUnreachable, opEnd)
	}
	if startBody != nil {
		more = append(binary.AppendUvarint(more, uint64(len(startBody))), startBody...)
	}
	number := binary.AppendUvarint(nil, count)
	o.head(format.SectionCode, len(number)+len(m.code)+len(more))
	o.bytes = append(o.bytes, number...)
	o.bytes = append(append(o.bytes, m.code...), more...)
}

// data appends the data section.
func (o *output) data(all []data) {
	if len(all) == 0 {
		return
	}
	heads, size := make([][]byte, len(all)), len(binary.AppendUvarint(nil, uint64(len(all))))
	for n, d := range all {
		heads[n] = appendDataHead(nil, d)
		size += len(heads[n]) + len(d.bytes)
	}
	o.head(format.SectionData, size)
	o.bytes = binary.AppendUvarint(o.bytes, uint64(len(all)))
	for n, d := range all {
		o.bytes = append(append(o.bytes, heads[n]...), d.bytes...)
	}
}

// listOf encodes a list, nil for an empty one.
func listOf[T any](list []T, add func([]byte, T) []byte) []byte {
	if len(list) == 0 {
		return nil
	}
	out := binary.AppendUvarint(nil, uint64(len(list)))
	for _, l := range list {
		out = add(out, l)
	}
	return out
}

func appendIndex(out []byte, n uint32) []byte { return binary.AppendUvarint(out, uint64(n)) }

func appendText(out []byte, text string) []byte {
	return append(binary.AppendUvarint(out, uint64(len(text))), text...)
}

func (m *merger) appendHost(out []byte, h Host) []byte {
	out = appendText(appendText(out, h.Module), h.Name)
	return appendIndex(append(out, format.KindFunction), m.types[string(encodeType(h.Type))])
}

func appendLimits(out []byte, l format.Limits) []byte {
	out = binary.AppendUvarint(append(out, l.Flags&format.LimitsHaveMax), l.Min)
	if l.Flags&format.LimitsHaveMax != 0 {
		out = binary.AppendUvarint(out, l.Max)
	}
	return out
}

func (m *merger) appendGlobal(out []byte, g global) []byte {
	mutable := byte(0)
	if g.mutable {
		mutable = 1
	}
	return append(g.initial.appendTo(append(out, g.value, mutable), m), opEnd)
}

func (m *merger) appendExport(out []byte, e export) []byte {
	index := e.index
	if e.kind == format.KindFunction {
		index = m.alias(index)
	}
	return appendIndex(append(appendText(out, e.name), e.kind), index)
}

// elementSection encodes the element segments, with one more that declares the functions to which
// bodies refer: what declared them in their module may not be in the output.
func (m *merger) elementSection() []byte {
	all := m.elements
	if len(m.declared) > 0 {
		items := slices.Sorted(maps.Keys(m.declared))
		all = append(slices.Clip(all), element{mode: declarative, value: typeFuncref, items: items})
	}
	return listOf(all, m.appendElement)
}

// startBody is the body of the function that applies the late segments and calls the start
// functions, in order. It is nil without any.
func (m *merger) startBody() []byte {
	if len(m.starts) == 0 {
		return nil
	}
	out := []byte{0}
	apply := func(offset uint32, size int) {
		for _, n := range []uint32{offset, 0, uint32(size)} {
			out = appendSigned(append(out, opI32Const), int64(int32(n)))
		}
	}
	for _, s := range m.starts {
		switch {
		case s.element >= 0:
			e := m.elements[s.element]
			apply(e.offset, len(e.items))
			out = appendIndex(appendIndex(append(out, opPrefixFC, fcTableInit), uint32(s.element)), e.table)
			out = appendIndex(append(out, opPrefixFC, fcElemDrop), uint32(s.element))
		case s.data >= 0:
			d := m.data[s.data]
			apply(d.offset, len(d.bytes))
			out = append(appendIndex(append(out, opPrefixFC, fcMemoryInit), uint32(s.data)), 0)
			out = appendIndex(append(out, opPrefixFC, fcDataDrop), uint32(s.data))
		default:
			out = appendIndex(append(out, opCall), m.alias(s.function))
		}
	}
	return append(out, opEnd)
}

// names encodes the name section: the imports by their own names, and each function of an instance
// by the name that its module has for it, behind that of the instance.
func (m *merger) names(start bool) []byte {
	var list []byte
	count := 0
	add := func(index uint32, parts ...string) {
		count++
		list = appendIndex(list, index)
		size := 0
		for _, p := range parts {
			size += len(p)
		}
		list = binary.AppendUvarint(list, uint64(size))
		for _, p := range parts {
			list = append(list, p...)
		}
	}
	for n, h := range m.hosts {
		if utf8.ValidString(h.Module) && utf8.ValidString(h.Name) {
			add(uint32(n), h.Module, "#", h.Name)
		}
	}
	for _, mod := range m.modules {
		_, section := format.Strip(mod.sections)
		if section == nil {
			section = format.ExportNames(mod.sections)
		}
		if section == nil {
			continue
		}
		names, prefix := format.ReadNames(section.Body), shorten(mod.name)
		first := len(mod.functions) - len(mod.bodies)
		for n := range mod.bodies {
			if name := names.Function(uint32(first + n)); name != "" && utf8.ValidString(name) {
				add(mod.functionsAt+uint32(n), prefix, ".", name)
			}
		}
	}
	if start {
		add(uint32(len(m.functions)), "start")
	}
	if count == 0 {
		return nil
	}
	list = append(binary.AppendUvarint(nil, uint64(count)), list...)
	const functions = 1
	body := binary.AppendUvarint(append([]byte("\x04name"), functions), uint64(len(list)))
	return append(body, list...)
}

// maxPrefix bounds the names of instances in the names of functions, in bytes.
const maxPrefix = 64

// shorten makes a prefix of a name of an instance.
func shorten(name string) string {
	if !utf8.ValidString(name) {
		return "?"
	}
	for len(name) > maxPrefix {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}
