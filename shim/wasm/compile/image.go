package compile

import "github.com/sunaba-project/sunaba/shim/wasm/format"

// image is the memory that a module's data segments make.
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

	dataActive = 0 // in memory 0; all other kinds are declined
)

// newImage copies the data segments of a module to where its memory would hold them. It declines,
// with a reason, what it does not understand or what has no such image: passive segments, an
// imported memory, several memories, segments at addresses that are computed or outside of the
// memory. Code that uses the segments (memory.init, data.drop) is found by the validation, which
// refuses it when the segments have been removed.
func newImage(sections []format.Section) (_ image, declined string) {
	size, declined := memorySize(sections)
	if declined != "" {
		return image{}, declined
	}
	segments, declined := dataSegments(format.Find(sections, format.SectionData))
	if declined != "" {
		return image{}, declined
	}
	low, high, total := size, uint64(0), uint64(0)
	for _, s := range segments {
		end := s.at + uint64(len(s.bytes))
		if end > size {
			return image{}, "a data segment lies outside of the memory"
		}
		low, high, total = min(low, s.at), max(high, end), total+uint64(len(s.bytes))
	}
	low -= low % imageAlign
	high += (imageAlign - high%imageAlign) % imageAlign // a memory is whole pages of wasm, which are these
	if high <= low || high-low > sparse*total+4*imageAlign {
		return image{}, "the data lies too far apart"
	}
	img := image{at: low, bytes: make([]byte, high-low)}
	for _, s := range segments {
		copy(img.bytes[s.at-low:], s.bytes)
	}
	return img, ""
}

// memorySize returns the initial size of the only memory in bytes.
func memorySize(sections []format.Section) (_ uint64, declined string) {
	imports, ok := format.Imports(sections)
	if !ok {
		return 0, "an import is of a kind that is not known"
	}
	for _, i := range imports {
		if i.Kind == format.KindMemory {
			return 0, "the memory is imported"
		}
	}
	memories, ok := format.Memories(sections)
	switch {
	case !ok:
		return 0, "the memory is of a kind that is not known"
	case len(memories) == 0:
		return 0, "there is no memory"
	case len(memories) > 1:
		return 0, "there are several memories"
	case memories[0].Flags&^format.LimitsHaveMax != 0:
		return 0, "the memory is shared or has 64-bit addresses"
	case memories[0].Min > wasmPage:
		return 0, "the memory is larger than 4 GiB"
	}
	return memories[0].Min * wasmPage, ""
}

// segment is one active data segment.
type segment struct {
	at    uint64
	bytes []byte
}

// dataSegments reads a data section. It declines all but active segments at constant addresses.
func dataSegments(body []byte) (_ []segment, declined string) {
	const none, broken = "there is no data", "the data section is not well-formed"
	if len(body) == 0 {
		return nil, none
	}
	r := format.Reader{Rest: body}
	var all []segment
	for range r.Number() {
		switch kind := r.Number(); {
		case r.Bad:
			return nil, broken
		case kind != dataActive:
			return nil, "a data segment is passive, or names its memory"
		case r.Octet() != opI32Const:
			return nil, "a data segment lies at a computed address"
		}
		at := uint64(uint32(r.Signed()))
		if r.Octet() != opEnd {
			return nil, "a data segment lies at a computed address"
		}
		all = append(all, segment{at, r.Bytes()})
		if r.Bad {
			return nil, broken
		}
	}
	switch {
	case r.Bad || len(r.Rest) > 0:
		return nil, broken
	case len(all) == 0:
		return nil, none
	}
	return all, ""
}
