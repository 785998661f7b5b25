// Package format reads the WebAssembly binary format as far as this project looks at modules
// itself: their sections, names, imports, exports and what they have of memories and tables.
// Whether a module is valid is for the engine to say; nothing here trusts one.
package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// Section ids.
const (
	SectionCustom    = 0
	SectionType      = 1
	SectionImport    = 2
	SectionFunction  = 3
	SectionTable     = 4
	SectionMemory    = 5
	SectionGlobal    = 6
	SectionExport    = 7
	SectionStart     = 8
	SectionElement   = 9
	SectionCode      = 10
	SectionData      = 11
	SectionDataCount = 12
	SectionTag       = 13 // of exception handling
)

// headerSize is the size of the magic number and version that a module starts with.
const headerSize = 8

var errTooLong = errors.New("section is longer than the module")

// Section is one section of a module.
type Section struct {
	ID   byte
	Body []byte
	Raw  []byte // with id and size
}

// Split cuts a module into its sections. It need not be valid.
func Split(module []byte) ([]Section, error) {
	if len(module) < headerSize {
		return nil, errors.New("module is too short")
	}
	var all []Section
	for rest := module[headerSize:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || n > 5 || size > uint64(len(rest)-1-n) {
			return nil, errTooLong
		}
		end := 1 + n + int(size)
		all = append(all, Section{ID: rest[0], Body: rest[1+n : end], Raw: rest[:end]})
		rest = rest[end:]
	}
	return all, nil
}

// Join is the reverse of Split.
func Join(sections []Section) []byte {
	size := headerSize
	for _, s := range sections {
		size += len(s.Raw)
	}
	module := append(make([]byte, 0, size), "\x00asm\x01\x00\x00\x00"...)
	for _, s := range sections {
		module = append(module, s.Raw...)
	}
	return module
}

// NewSection encodes a section.
func NewSection(id byte, body []byte) Section {
	raw := binary.AppendUvarint([]byte{id}, uint64(len(body)))
	head := len(raw)
	raw = append(raw, body...)
	return Section{ID: id, Body: raw[head:], Raw: raw}
}

// Strip returns the sections that matter to a run: all but the custom ones, of which the names of
// functions come extra. Stack traces show them; DWARF and the like only cost every start.
func Strip(sections []Section) (lean []Section, names *Section) {
	for i, s := range sections {
		switch {
		case s.ID != SectionCustom:
			lean = append(lean, s)
		case isName(s.Body):
			names = &sections[i]
		}
	}
	return lean, names
}

// Without returns the sections except those with these ids.
func Without(sections []Section, ids ...byte) []Section {
	return slices.DeleteFunc(slices.Clone(sections), func(s Section) bool { return slices.Contains(ids, s.ID) })
}

// Find returns the body of the only section with an id. Without one it is nil; a second one makes
// the module invalid.
func Find(sections []Section, id byte) []byte {
	for _, s := range sections {
		if s.ID == id {
			return s.Body
		}
	}
	return nil
}

// isName says whether a custom section's content is the name section.
func isName(content []byte) bool {
	return bytes.HasPrefix(content, []byte(nameTitle))
}

// nameTitle is what the content of the name section starts with: the length of its name, and that.
const nameTitle = "\x04name"

// Custom reads the name of a custom section and what follows it.
func (s Section) Custom() (name string, content []byte) {
	r := Reader{Rest: s.Body}
	name = string(r.Bytes())
	return name, r.Rest
}

// Reader reads the numbers of the binary format. After an error, which Bad tells of, it gives
// nothing but zeros.
type Reader struct {
	Rest []byte
	Bad  bool
}

func (r *Reader) fail() { r.Bad, r.Rest = true, nil }

// Number reads an unsigned number of up to 32 bits.
func (r *Reader) Number() uint32 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return uint32(v)
}

// Wide reads an unsigned number of up to 64 bits.
func (r *Reader) Wide() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Signed reads a signed number of up to 32 bits.
func (r *Reader) Signed() int32 {
	var v int64
	for shift := 0; shift < 35; shift += 7 {
		b := r.Octet()
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			if b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return int32(v)
		}
	}
	r.fail()
	return 0
}

// Long reads a signed number of up to 64 bits.
func (r *Reader) Long() int64 {
	var v int64
	for shift := 0; shift < 70; shift += 7 {
		b := r.Octet()
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			if b&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	r.fail()
	return 0
}

// Skip passes over bytes.
func (r *Reader) Skip(n int) {
	if n > len(r.Rest) {
		r.fail()
		return
	}
	r.Rest = r.Rest[n:]
}

// Octet reads one byte.
func (r *Reader) Octet() byte {
	if len(r.Rest) == 0 {
		r.Bad = true
		return 0
	}
	b := r.Rest[0]
	r.Rest = r.Rest[1:]
	return b
}

// Bytes reads a number and as many bytes.
func (r *Reader) Bytes() []byte {
	n := r.Number()
	if uint64(n) > uint64(len(r.Rest)) {
		r.fail()
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Limits are how large a memory (in pages) or a table (in elements) is at first, and how large it
// may become.
type Limits struct {
	Flags    byte
	Min, Max uint64 // Max counts with LimitsHaveMax only
}

// Flags of limits.
const (
	LimitsHaveMax = 1
	LimitsShared  = 2 // of threads
	LimitsWide    = 4 // 64-bit addresses
)

// Limits reads limits.
func (r *Reader) Limits() Limits {
	l := Limits{Flags: r.Octet()}
	number := func() uint64 { return uint64(r.Number()) }
	if l.Flags&LimitsWide != 0 {
		number = r.Wide
	}
	l.Min = number()
	if l.Flags&LimitsHaveMax != 0 {
		l.Max = number()
	}
	if l.Flags&^(LimitsHaveMax|LimitsShared|LimitsWide) != 0 {
		r.fail() // what follows is not known
	}
	return l
}
