package compile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// Section ids of the binary format.
const (
	sectionCustom    = 0
	sectionImport    = 2
	sectionMemory    = 5
	sectionStart     = 8
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

// headerSize is the size of the magic number and version that a module begins with.
const headerSize = 8

var errTooLong = errors.New("section is longer than the module")

// section is one section of a module.
type section struct {
	id   byte
	body []byte
	raw  []byte // with id and size
}

// split cuts a module into its sections. It need not be valid.
func split(module []byte) ([]section, error) {
	if len(module) < headerSize {
		return nil, errors.New("module is too short")
	}
	var all []section
	for rest := module[headerSize:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || n > 5 || size > uint64(len(rest)-1-n) {
			return nil, errTooLong
		}
		end := 1 + n + int(size)
		all = append(all, section{id: rest[0], body: rest[1+n : end], raw: rest[:end]})
		rest = rest[end:]
	}
	return all, nil
}

// join is the reverse of split.
func join(sections []section) []byte {
	size := headerSize
	for _, s := range sections {
		size += len(s.raw)
	}
	module := append(make([]byte, 0, size), "\x00asm\x01\x00\x00\x00"...)
	for _, s := range sections {
		module = append(module, s.raw...)
	}
	return module
}

// newSection encodes a section.
func newSection(id byte, body []byte) section {
	raw := binary.AppendUvarint([]byte{id}, uint64(len(body)))
	head := len(raw)
	raw = append(raw, body...)
	return section{id: id, body: raw[head:], raw: raw}
}

// strip returns the sections that matter to a run: all but the custom ones, of which the names of
// functions come extra. Stack traces show them; DWARF and the like only cost every start.
func strip(sections []section) (lean []section, names *section) {
	for i, s := range sections {
		switch {
		case s.id != sectionCustom:
			lean = append(lean, s)
		case isName(s.body):
			names = &sections[i]
		}
	}
	return lean, names
}

// without returns the sections but for those with these ids.
func without(sections []section, ids ...byte) []section {
	return slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return slices.Contains(ids, s.id) })
}

// find returns the body of the only section with an id. Without one it is nil; a second one makes the module invalid.
func find(sections []section, id byte) []byte {
	for _, s := range sections {
		if s.id == id {
			return s.body
		}
	}
	return nil
}

// isName says whether a custom section's content is the name section.
func isName(content []byte) bool {
	return bytes.HasPrefix(content, []byte(nameTitle))
}

// nameTitle is what the content of the name section begins with: the length of its name, and that.
const nameTitle = "\x04name"

// reader reads the numbers of the binary format. After an error it gives nothing but zeros.
type reader struct {
	rest []byte
	bad  bool
}

// number reads an unsigned number of up to 32 bits.
func (r *reader) number() uint32 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return uint32(v)
}

// signed reads a signed number of up to 32 bits.
func (r *reader) signed() int32 {
	var v int64
	for shift := 0; shift < 35; shift += 7 {
		b := r.octet()
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			if b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return int32(v)
		}
	}
	r.bad, r.rest = true, nil
	return 0
}

func (r *reader) octet() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// bytes reads a number and as many bytes.
func (r *reader) bytes() []byte {
	n := r.number()
	if uint64(n) > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}
