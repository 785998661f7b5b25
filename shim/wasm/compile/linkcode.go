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

// stub is the machine code in the cache file of a module whose code is in a file of its own
// (StepShare): no instructions, for no function.
var stub = make([]byte, 16)

// offsetSize is the size of one number of the file OffsetsName: the start of a function in the
// code, little-endian.
const offsetSize = 4

// Offsets reads where the functions of an entry's machine code start, in their order.
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

// CheckCode compares the machine code in the file CodeName of an entry with its checksum. It reads the
// file: a mapping of one that cannot be read would end this process.
func (l Load) CheckCode(file *os.File) error {
	n, sum, err := checksum(file, make([]byte, readSize))
	if err == nil && (uint64(n) != l.CodeSize || sum != l.CodeSum) {
		err = errors.New("machine code is damaged")
	}
	return err
}

// Sum returns the checksum of machine code as Load has it.
func Sum(code []byte) uint32 { return crc32.Checksum(code, castagnoli()) }

// LinkCode links machine code into a module that was loaded from an entry with a stub: the code of
// all its functions, which is executable memory from x/sys/unix.Mmap and is not changed or
// unmapped afterwards. The module must not have been instantiated.
//
// # Errors
//
// One for a version of wazero that was not checked, and one for a module that does not have the
// stub where it is expected. Nothing is changed then, and the module cannot be used.
func LinkCode(module wazero.CompiledModule, code []byte, offsets []int) error {
	if err := wazeroversion.Check(); err != nil {
		return err
	}
	p, err := findCode(module)
	if err != nil {
		return err
	}
	for i, at := range offsets {
		if at >= len(code) {
			return fmt.Errorf("function %d starts behind the machine code", i)
		}
	}
	stub := *p.code
	*p.code, *p.offsets = code, offsets
	return unix.Munmap(stub)
}

// codeFields are the fields in which wazero keeps the code of a module.
type codeFields struct {
	code    *[]byte
	offsets *[]int
}

// findCode finds these fields by their names and types. It accepts only a stub without functions,
// of the only module of its engine: then the engine's list of modules by address stays sorted
// whatever address the code has.
func findCode(module wazero.CompiledModule) (p codeFields, err error) {
	engine := field(reflect.ValueOf(module), "compiledEngine")
	known, sorted := field(engine, "compiledModules"), field(engine, "sortedCompiledModules")
	if known.Kind() != reflect.Map || known.Len() != 1 || sorted.Kind() != reflect.Slice || sorted.Len() != 1 {
		return p, errors.New("find machine code: the engine does not have the expected fields")
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
	return codeFields{code, offsets}, nil
}

// field returns a field of the structure that v is or refers to, no value if it has no such field.
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

// pointerTo returns the address of a value that has exactly this type.
func pointerTo[T any](v reflect.Value) (*T, bool) {
	if !v.IsValid() || v.Type() != reflect.TypeFor[T]() || !v.CanAddr() {
		return nil, false
	}
	return (*T)(unsafe.Pointer(v.UnsafeAddr())), true
}
