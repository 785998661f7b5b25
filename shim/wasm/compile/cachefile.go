package compile

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// cacheFile is a file of wazero's cache, the machine code of one module:
//
//	"WAZEVO", length of version (1 byte), version, number of functions (4),
//	offset of each function in the code (8 each), length of code (8), code, CRC-32C of code (4),
//	whether there is a source map (1), that map, catch clauses
//
// All numbers are little-endian.
type cacheFile struct {
	head    []byte // up to the version
	offsets []byte
	code    []byte
	rest    []byte // behind the checksum
}

// parseCacheFile reads the file of a module with so many functions. It returns false for any other
// layout.
func parseCacheFile(entry []byte, functions int) (c cacheFile, ok bool) {
	rest, ok := bytes.CutPrefix(entry, []byte("WAZEVO"))
	if !ok || len(rest) < 1 || len(rest) < 1+int(rest[0])+4 {
		return cacheFile{}, false
	}
	rest = rest[1+int(rest[0]):]
	c.head = entry[:len(entry)-len(rest)]
	if binary.LittleEndian.Uint32(rest) != uint32(functions) {
		return cacheFile{}, false
	}
	if rest = rest[4:]; len(rest) < 8*functions+8 {
		return cacheFile{}, false
	}
	c.offsets = rest[:8*functions]
	size := binary.LittleEndian.Uint64(rest[8*functions:])
	if rest = rest[8*functions+8:]; size == 0 || size > math.MaxInt32 || size > uint64(len(rest)) || len(rest)-int(size) < 4 {
		return cacheFile{}, false
	}
	c.code, c.rest = rest[:size], rest[size+4:]
	for i := range functions {
		if binary.LittleEndian.Uint64(c.offsets[8*i:]) >= size {
			return cacheFile{}, false
		}
	}
	return c, binary.LittleEndian.Uint32(rest[size:]) == Sum(c.code)
}

// withStub returns the file with a stub in place of code and functions. It returns nil if there is
// a source map, which would have to move with the code.
func (c cacheFile) withStub() []byte {
	if len(c.rest) == 0 || c.rest[0] != 0 {
		return nil
	}
	entry := binary.LittleEndian.AppendUint32(bytes.Clone(c.head), 0)
	entry = binary.LittleEndian.AppendUint64(entry, uint64(len(stub)))
	entry = binary.LittleEndian.AppendUint32(append(entry, stub...), Sum(stub))
	return append(entry, c.rest...)
}

// encodeOffsets returns the offsets as the file OffsetsName has them.
func (c cacheFile) encodeOffsets() []byte {
	all := make([]byte, 0, len(c.offsets)/8*offsetSize)
	for i := 0; i < len(c.offsets); i += 8 {
		all = binary.LittleEndian.AppendUint32(all, uint32(binary.LittleEndian.Uint64(c.offsets[i:])))
	}
	return all
}

// functionCount is the number of functions that a module defines.
func functionCount(sections []format.Section) int {
	r := format.Reader{Rest: format.Find(sections, format.SectionCode)}
	return int(r.Number())
}

// padCode returns code as it is in memory: whole pages, filled up with zeros.
func padCode(code []byte) []byte {
	padded := make([]byte, (len(code)+imageAlign-1)/imageAlign*imageAlign)
	copy(padded, code)
	return padded
}
