package merge

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// mode is what happens to a segment when its instance is made.
type mode byte

const (
	active      mode = iota // it is applied
	late                    // it is applied by the start function of the output, and passive there
	passive                 // nothing
	declarative             // it is dropped
)

// element is an element segment. Items are functions of the output, or nullItem.
type element struct {
	mode          mode
	value         byte // type
	table, offset uint32
	items         []uint32
}

const nullItem = math.MaxUint32

// data is a data segment.
type data struct {
	mode   mode
	offset uint32
	bytes  []byte
}

// readSegments reads the segments, and puts those of instances that come after the first start
// function, and the start functions, in order.
func (m *merger) readSegments(Input) error {
	for _, mod := range m.modules {
		mod.elementsAt, mod.dataAt = uint32(len(m.elements)), uint32(len(m.data))
		if err := m.readModuleSegments(mod); err != nil {
			return fmt.Errorf("instance %q: %w", mod.name, err)
		}
		mod.elements, mod.dataItems = len(m.elements)-int(mod.elementsAt), len(m.data)-int(mod.dataAt)
		for n := mod.elementsAt; n < uint32(len(m.elements)); n++ {
			if m.elements[n].mode == late {
				m.starts = append(m.starts, start{element: int(n), data: -1})
			}
		}
		for n := mod.dataAt; n < uint32(len(m.data)); n++ {
			if m.data[n].mode == late {
				m.starts = append(m.starts, start{element: -1, data: int(n)})
			}
		}
		if mod.start != nil {
			m.starts = append(m.starts, start{-1, -1, mod.functions[*mod.start]})
		}
		if len(m.elements) > maxItems || len(m.data) > maxItems {
			return fmt.Errorf("instance %q: more than %d segments: %w", mod.name, maxItems, ErrTooLarge)
		}
	}
	return nil
}

func (m *merger) readModuleSegments(mod *module) error {
	applied := active
	if len(m.starts) > 0 {
		applied = late
	}
	if mod.elementBody != nil {
		r := newReader(mod.elementBody)
		each(r, func() { m.elements = append(m.elements, m.readElement(mod, r, applied)) })
		if err := r.end(sectionName(format.SectionElement)); err != nil {
			return err
		}
	}
	before := len(m.data)
	if mod.dataBody != nil {
		r := newReader(mod.dataBody)
		each(r, func() { m.data = append(m.data, m.readData(mod, r, applied)) })
		if err := r.end(sectionName(format.SectionData)); err != nil {
			return err
		}
	}
	if n := len(m.data) - before; mod.dataCount >= 0 && mod.dataCount != int64(n) {
		return invalid("it counts %d data segments and has %d", mod.dataCount, n)
	}
	return nil
}

func (m *merger) readData(mod *module, r *reader, applied mode) data {
	d := data{mode: applied}
	switch kind := r.Number(); kind {
	case 0:
	case 1:
		d.mode = passive
	case 2:
		if r.Number() != 0 {
			r.refuse(errMemories)
		}
	default:
		r.refuse(invalid("unknown kind %d of a data segment", kind))
	}
	if d.mode != passive && !r.Bad {
		if len(mod.memories) == 0 {
			r.refuse(invalid("there is data and no memory"))
		}
		d.offset = uint32(m.constant(mod, r, typeI32).low)
	}
	d.bytes = r.Bytes()
	return d
}

// Bits of the kind of an element segment.
const (
	elementIsNotActive = 1
	elementIsExplicit  = 2 // it names its table, or it is declarative
	elementIsExpressed = 4 // its items are expressions
)

func (m *merger) readElement(mod *module, r *reader, applied mode) element {
	e := element{mode: applied, value: typeFuncref}
	kind := r.Number()
	switch {
	case kind > 7:
		r.refuse(invalid("unknown kind %d of an element segment", kind))
	case kind&elementIsNotActive == 0:
		n := uint32(0)
		if kind&elementIsExplicit != 0 {
			n = r.Number()
		}
		if uint64(n) >= uint64(len(mod.tables)) {
			r.refuse(invalid("there are elements of table %d of %d", n, len(mod.tables)))
			return e
		}
		e.table = mod.tables[n]
		e.offset = uint32(m.constant(mod, r, typeI32).low)
	case kind&elementIsExplicit != 0:
		e.mode = declarative
	default:
		e.mode = passive
	}
	if kind&(elementIsNotActive|elementIsExplicit) != 0 {
		e.value = readElementType(r, kind&elementIsExpressed != 0)
	}
	if e.mode == applied && !r.Bad && m.tables[e.table].element != e.value {
		r.refuse(invalid("elements are of another type than their table"))
	}
	m.readItems(mod, r, &e, kind&elementIsExpressed != 0)
	return e
}

func readElementType(r *reader, expressed bool) byte {
	t := r.Octet()
	switch {
	case r.Bad:
	case expressed:
		r.refuse(checkReferenceType(t))
	case t != 0:
		r.refuse(invalid("unknown kind 0x%02x of elements", t))
	default:
		return typeFuncref
	}
	return t
}

// readItems reads the items of an element segment.
func (m *merger) readItems(mod *module, r *reader, e *element, expressed bool) {
	count := r.Number()
	if uint64(count) > uint64(len(r.Rest)) {
		r.refuse(invalid("an element segment is cut short"))
		return
	}
	e.items = make([]uint32, 0, count)
	for range count {
		if r.Bad {
			return
		}
		if expressed {
			e.items = append(e.items, uint32(m.constant(mod, r, e.value).low))
		} else {
			e.items = append(e.items, mod.declare(r))
		}
	}
}

// appendElement appends an element segment as the output has it.
func (m *merger) appendElement(out []byte, e element) []byte {
	kind, expressed := uint64(0), e.value != typeFuncref
	for _, i := range e.items {
		expressed = expressed || i == nullItem
	}
	if expressed {
		kind |= elementIsExpressed
	}
	switch {
	case e.mode == active && (e.table != 0 || e.value != typeFuncref):
		kind |= elementIsExplicit
	case e.mode == declarative:
		kind |= elementIsNotActive | elementIsExplicit
	case e.mode != active:
		kind |= elementIsNotActive
	}
	out = binary.AppendUvarint(out, kind)
	if e.mode == active {
		if kind&elementIsExplicit != 0 {
			out = binary.AppendUvarint(out, uint64(e.table))
		}
		out = append(appendSigned(append(out, opI32Const), int64(int32(e.offset))), opEnd)
	}
	switch {
	case kind&(elementIsNotActive|elementIsExplicit) == 0:
	case expressed:
		out = append(out, e.value)
	default:
		out = append(out, 0)
	}
	out = binary.AppendUvarint(out, uint64(len(e.items)))
	for _, i := range e.items {
		switch {
		case !expressed:
			out = binary.AppendUvarint(out, uint64(m.alias(i)))
		case i == nullItem:
			out = append(out, opRefNull, e.value, opEnd)
		default:
			out = append(binary.AppendUvarint(append(out, opRefFunc), uint64(m.alias(i))), opEnd)
		}
	}
	return out
}

// appendDataHead appends what comes before the bytes of a data segment.
func appendDataHead(out []byte, d data) []byte {
	if d.mode == active {
		out = append(appendSigned(append(out, 0, opI32Const), int64(int32(d.offset))), opEnd)
	} else {
		out = append(out, 1)
	}
	return binary.AppendUvarint(out, uint64(len(d.bytes)))
}
