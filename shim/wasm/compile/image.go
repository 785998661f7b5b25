package compile

// image is what a module's data segments make of its memory.
type image struct {
	at    uint64 // address of its first byte, a multiple of imageAlign
	bytes []byte // up to the last byte, padded to a multiple of imageAlign where the memory reaches as far
}

const (
	wasmPage = 64 << 10
	// imageAlign suits every page size of a host.
	imageAlign = wasmPage
	// sparse bounds how much larger than its data an image may be.
	sparse = 4
)

// Opcodes of constant expressions, and flags.
const (
	opI32Const = 0x41
	opEnd      = 0x0b

	importMemory  = 2
	limitsHaveMax = 1 // the only flag of a memory that is understood

	dataActive = 0 // in memory 0; all other kinds are declined
)

// newImage lays the data segments of a module out as its memory would hold them. It declines with false
// what it does not understand or what has no such image: passive segments, an imported memory, several
// memories, segments at addresses that are computed or outside of the memory. That no code uses the segments (memory.init,
// data.drop) is for the validation to find, which refuses such code once they are gone.
func newImage(sections []section) (image, bool) {
	size, ok := memorySize(sections)
	if !ok {
		return image{}, false
	}
	segments, ok := dataSegments(find(sections, sectionData))
	if !ok || len(segments) == 0 {
		return image{}, false
	}
	low, high, total := size, uint64(0), uint64(0)
	for _, s := range segments {
		end := s.at + uint64(len(s.bytes))
		if end > size {
			return image{}, false
		}
		low, high, total = min(low, s.at), max(high, end), total+uint64(len(s.bytes))
	}
	low -= low % imageAlign
	high += (imageAlign - high%imageAlign) % imageAlign // a memory is whole pages of wasm, which are these
	if high <= low || high-low > sparse*total+4*imageAlign {
		return image{}, false
	}
	img := image{at: low, bytes: make([]byte, high-low)}
	for _, s := range segments {
		copy(img.bytes[s.at-low:], s.bytes)
	}
	return img, true
}

// memorySize is what a module's only memory begins with, in bytes.
func memorySize(sections []section) (uint64, bool) {
	imports := reader{rest: find(sections, sectionImport)}
	if len(imports.rest) > 0 {
		for range imports.number() {
			imports.bytes()
			imports.bytes()
			if skipImport(&imports) == importMemory || imports.bad {
				return 0, false
			}
		}
	}
	memories := reader{rest: find(sections, sectionMemory)}
	count, flags := memories.number(), memories.octet()
	pages := memories.number()
	if memories.bad || count != 1 || flags&^limitsHaveMax != 0 || pages > wasmPage {
		return 0, false
	}
	return uint64(pages) * wasmPage, true
}

// skipImport reads the description of an import and returns its kind. What is not known is an error.
func skipImport(r *reader) (kind byte) {
	const function, table, global = 0, 1, 3
	switch kind = r.octet(); kind {
	case function:
		r.number()
	case table:
		r.octet()
		skipLimits(r)
	case importMemory:
		skipLimits(r)
	case global:
		r.octet()
		r.octet()
	default:
		r.bad = true
	}
	return kind
}

func skipLimits(r *reader) {
	flags := r.octet()
	r.number()
	if flags&limitsHaveMax != 0 {
		r.number()
	}
}

// segment is one active data segment.
type segment struct {
	at    uint64
	bytes []byte
}

// dataSegments reads a data section that has nothing but active segments at constant addresses.
func dataSegments(body []byte) ([]segment, bool) {
	r := reader{rest: body}
	if len(body) == 0 {
		return nil, false
	}
	var all []segment
	for range r.number() {
		if r.number() != dataActive || r.octet() != opI32Const {
			return nil, false
		}
		at := uint64(uint32(r.signed()))
		if r.octet() != opEnd {
			return nil, false
		}
		all = append(all, segment{at, r.bytes()})
		if r.bad {
			return nil, false
		}
	}
	return all, !r.bad && len(r.rest) == 0
}
