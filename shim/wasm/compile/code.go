package compile

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// knownWazero is the version whose cache entries this package knows: that what a module's code does at run time is
// decided by the entry alone, and how an entry is laid out. Before it is raised, the tests of this
// package are to be read beside wazero's engine_cache.go.
const knownWazero = "v1.12.0"

// isKnown says whether the version that is linked in is the known one. Test binaries do not tell; they
// are built by the same go.mod.
func isKnown() bool {
	v := wazeroVersion()
	return v == knownWazero || v == unknownVersion
}

// machineCode finds the machine code in a cache entry of wazero for a module with so many functions:
//
//	"WAZEVO", length of version (1 byte), version, number of functions (4),
//	offset of each function in the code (8 each), length of code (8), code, CRC-32C of code (4), …
//
// All numbers are little-endian. What differs from that is declined with false.
func machineCode(entry []byte, functions int) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(entry, []byte("WAZEVO"))
	if !ok || len(rest) < 1 || len(rest) < 1+int(rest[0])+4 {
		return nil, false
	}
	rest = rest[1+int(rest[0]):]
	if binary.LittleEndian.Uint32(rest) != uint32(functions) {
		return nil, false
	}
	if rest = rest[4:]; len(rest) < 8*functions+8 {
		return nil, false
	}
	offsets := rest[:8*functions]
	size := binary.LittleEndian.Uint64(rest[8*functions:])
	if rest = rest[8*functions+8:]; size == 0 || size > math.MaxInt || size > uint64(len(rest)) || len(rest)-int(size) < 4 {
		return nil, false
	}
	code := rest[:size]
	for i := range functions {
		if binary.LittleEndian.Uint64(offsets[8*i:]) >= size {
			return nil, false
		}
	}
	sum := crc32.Checksum(code, crc32.MakeTable(crc32.Castagnoli))
	return code, binary.LittleEndian.Uint32(rest[size:]) == sum
}

// functionCount is the number of functions that a module defines.
func functionCount(sections []format.Section) int {
	r := format.Reader{Rest: format.Find(sections, format.SectionCode)}
	return int(r.Number())
}

// padCode is code as it lies in memory: whole pages, zeros behind it.
func padCode(code []byte) []byte {
	padded := make([]byte, (len(code)+imageAlign-1)/imageAlign*imageAlign)
	copy(padded, code)
	return padded
}
