package compile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

// stub is the machine code in the cache entry of a module whose code lies in a file of its own (StepShare): no
// instructions, for no function.
var stub = make([]byte, 16)

// offsetSize is the size of one number of the file OffsetsName: where a function begins in the code, little-endian.
const offsetSize = 4

// Offsets reads where the functions of an entry's machine code begin, in their order.
func Offsets(dir string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(dir, OffsetsName))
	if err != nil {
		return nil, err
	}
	offsets := make([]int, len(data)/offsetSize)
	for i := range offsets {
		offsets[i] = int(binary.LittleEndian.Uint32(data[offsetSize*i:]))
	}
	return offsets, nil
}

// Sum is the checksum of machine code that Load has.
func Sum(code []byte) uint32 { return crc32.Checksum(code, castagnoli()) }

// Lend gives a module that was loaded from an entry with a stub the code of all its functions, which is executable memory from
// x/sys/unix.Mmap and stays what it is. Nothing of the module may have been instantiated. On error nothing is changed, and the
// module cannot be used.
func Lend(module wazero.CompiledModule, code []byte, offsets []int) error {
	if err := wazeroversion.Check(); err != nil {
		return err
	}
	p, err := placeOf(module)
	if err != nil {
		return err
	}
	for i, at := range offsets {
		if at >= len(code) {
			return fmt.Errorf("function %d begins behind the machine code", i)
		}
	}
	stub := *p.code
	*p.code, *p.offsets = code, offsets
	return unix.Munmap(stub)
}

// place is where wazero keeps the code of a module.
type place struct {
	code    *[]byte
	offsets *[]int
}

// placeOf finds it by the names and types of wazero's fields, and takes nothing else for it: a stub without functions, of
// the only module of its engine. So the engine's list of modules by address is in order whatever address the code gets.
func placeOf(module wazero.CompiledModule) (p place, err error) {
	engine := field(reflect.ValueOf(module), "compiledEngine")
	known, sorted := field(engine, "compiledModules"), field(engine, "sortedCompiledModules")
	if known.Kind() != reflect.Map || known.Len() != 1 || sorted.Kind() != reflect.Slice || sorted.Len() != 1 {
		return p, errors.New("find machine code: the engine is not as it was thought to be")
	}
	each := known.MapRange()
	each.Next()
	compiled := field(each.Value(), "compiledModule")
	if compiled.Kind() != reflect.Pointer || compiled.Pointer() != sorted.Index(0).Pointer() {
		return p, errors.New("find machine code: the engine has other modules")
	}
	code, ok1 := pointerTo[[]byte](field(field(compiled, "executables"), "executable"))
	offsets, ok2 := pointerTo[[]int](field(compiled, "functionOffsets"))
	if !ok1 || !ok2 || !bytes.Equal(*code, stub) || len(*offsets) != 0 {
		return p, errors.New("find machine code: it is no stub")
	}
	return place{code, offsets}, nil
}

// field is a field of the structure that v is, or that v leads to; no value if there is none.
func field(v reflect.Value, name string) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	if f, ok := v.Type().FieldByName(name); !ok || len(f.Index) != 1 {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

// pointerTo is where a value of exactly this type is kept.
func pointerTo[T any](v reflect.Value) (*T, bool) {
	if !v.IsValid() || v.Type() != reflect.TypeFor[T]() || !v.CanAddr() {
		return nil, false
	}
	return (*T)(unsafe.Pointer(v.UnsafeAddr())), true
}
