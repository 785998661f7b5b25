package canonical

import (
	"encoding/binary"
	"fmt"
)

// maxParams is the greatest number of flat parameters, with a pointer to a result.
const maxParams = 17

// spill is how parameters lie in memory. Its text has a letter for each value: b, h, i and I for
// those of 1, 2, 4 and 8 bytes, s for strings and lists; a record is "(" its parts ")", a variant
// "<" the parts of each case, with "|" between them ">". Flat, a case is followed by what the
// longest case needs; all flat values of the cases of one variant have the same type at a place.
type spill []part

// part is a value, a record or a variant.
type part struct {
	size, align uint32
	flat        int // number of flat values
	kind        byte
	parts       []part // of a record
	cases       [][]part
	payload     uint32 // where that of a case is
}

// parseSpill reads the text, which is the program's own.
func parseSpill(text string) spill {
	parts, rest := parseParts(text)
	if rest != "" {
		panic(fmt.Sprintf("layout %q ends at %q", text, rest))
	}
	return spill(parts)
}

// parseParts reads parts up to what closes them.
func parseParts(text string) (parts []part, rest string) {
	for text != "" {
		p := part{kind: text[0]}
		switch text[0] {
		case 'b':
			p.size, p.align, p.flat = 1, 1, 1
		case 'h':
			p.size, p.align, p.flat = 2, 2, 1
		case 'i':
			p.size, p.align, p.flat = 4, 4, 1
		case 'I':
			p.size, p.align, p.flat = 8, 8, 1
		case 's':
			p.size, p.align, p.flat = 8, 4, 2
		case '(':
			p.parts, text = parseParts(text[1:])
			p.size, p.align, p.flat = measure(p.parts)
		case '<':
			p.align = 1
			for text[0] != '>' {
				var one []part
				one, text = parseParts(text[1:])
				size, align, flat := measure(one)
				p.cases = append(p.cases, one)
				p.size, p.align, p.flat = max(p.size, size), max(p.align, align), max(p.flat, flat)
			}
			p.payload = p.align
			p.size = roundUp(p.payload+p.size, p.align)
			p.flat++
		default:
			return parts, text
		}
		text = text[1:]
		parts = append(parts, p)
	}
	return parts, ""
}

func roundUp(n, align uint32) uint32 { return (n + align - 1) / align * align }

// measure is the layout of a record.
func measure(parts []part) (size, align uint32, flat int) {
	align = 1
	for _, p := range parts {
		size = roundUp(size, p.align) + p.size
		align = max(align, p.align)
		flat += p.flat
	}
	return roundUp(size, align), align, flat
}

// load reads the parameters at an address into flat ones.
func (s spill) load(c *Call, at uint32, flat []uint64) {
	size, align, _ := measure(s)
	if at%align != 0 {
		Trapf("pointer %#x of parameters is not aligned to %d", at, align)
	}
	loadParts(c.View(at, uint64(size)), s, flat)
}

func loadParts(b []byte, parts []part, flat []uint64) {
	at := uint32(0)
	for _, p := range parts {
		at = roundUp(at, p.align)
		p.load(b[at:], flat[:p.flat])
		at += p.size
		flat = flat[p.flat:]
	}
}

func (p *part) load(b []byte, flat []uint64) {
	clear(flat)
	switch p.kind {
	case 'b':
		flat[0] = uint64(b[0])
	case 'h':
		flat[0] = uint64(binary.LittleEndian.Uint16(b))
	case 'i':
		flat[0] = uint64(binary.LittleEndian.Uint32(b))
	case 'I':
		flat[0] = binary.LittleEndian.Uint64(b)
	case 's':
		flat[0], flat[1] = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[4:]))
	case '(':
		loadParts(b, p.parts, flat)
	case '<':
		flat[0] = uint64(b[0])
		if uint64(len(p.cases)) > flat[0] {
			loadParts(b[p.payload:], p.cases[b[0]], flat[1:])
		}
	}
}
