package engine

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// Parts of modules in the binary format. A text of five bytes lies at textAt, and printing writes
// it to the standard output.
const (
	textAt    = 16
	paddingAt = 64 << 10
)

var printing = []byte{0x41, 1, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 0, 0x1a} // fd_write(1, 0, 1, 8)

// vector encodes how many items there are, and the items.
func vector(items ...[]byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(items))), slices.Concat(items...)...)
}

// sized encodes how many bytes there are, and the bytes.
func sized(data []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(data))), data...)
}

func part(id byte, content []byte) []byte { return append([]byte{id}, sized(content)...) }

// at encodes a number up to 1 MiB as the address of a segment.
func at(n int) []byte {
	return []byte{0x41, byte(n)&0x7f | 0x80, byte(n>>7)&0x7f | 0x80, byte(n >> 14 & 0x3f), 0x0b}
}

func active(address int, data []byte) []byte {
	return slices.Concat([]byte{0}, at(address), sized(data))
}

func passive(data []byte) []byte { return append([]byte{1}, sized(data)...) }

// buffers is the segment that describes fd_write's one buffer; padding makes an image of the memory
// worth while.
var (
	buffers = active(0, []byte{textAt, 0, 0, 0, 5, 0, 0, 0})
	padding = active(paddingAt, bytes.Repeat([]byte("x"), 128<<10))
)

// odd is a module by what is odd about it.
type odd struct {
	imports  []byte   // beside fd_write
	memories [][]byte // nil = one of four pages
	segments [][]byte // beside buffers and padding
	counted  bool     // there is a count of segments, as code that uses them needs
	before   []byte   // instructions of _start before it prints
	starts   bool     // a start function prints too
}

func (o odd) module() []byte {
	memories := o.memories
	if memories == nil {
		memories = [][]byte{{0, 4}}
	}
	imports := [][]byte{slices.Concat(sized([]byte("wasi_snapshot_preview1")), sized([]byte("fd_write")), []byte{0, 0})}
	if o.imports != nil {
		imports = append(imports, o.imports)
	}
	segments := append([][]byte{buffers}, append(slices.Clone(o.segments), padding)...)
	module := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		part(1, vector([]byte{0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f}, []byte{0x60, 0, 0})),
		part(2, vector(imports...)),
		part(3, vector([]byte{1}, []byte{1})),
		part(5, vector(memories...)),
		part(7, vector([]byte("\x06_start\x00\x01"), []byte("\x06memory\x02\x00"))))
	if o.starts {
		module = append(module, part(8, []byte{2})...)
	}
	if o.counted {
		module = append(module, part(12, []byte{byte(len(segments))})...)
	}
	return slices.Concat(module,
		part(10, vector(sized(slices.Concat([]byte{0}, o.before, printing, []byte{0x0b})), sized(slices.Concat([]byte{0}, printing, []byte{0x0b})))),
		part(11, vector(segments...)))
}

// TestOddModules runs modules that the step of the memory's image understands, must not understand,
// or that nobody can run: all ends as it does without any step.
func TestOddModules(t *testing.T) {
	hello := []byte("hello")
	for _, c := range []struct {
		name    string
		odd     odd
		image   bool   // the step is taken
		stdout  string // and exit code 0
		trap    string // in the message, exit code 134
		refused string // in the error
	}{
		{name: "usual", odd: odd{segments: [][]byte{active(textAt, hello)}}, image: true, stdout: "hello"},
		{name: "segments over each other", odd: odd{segments: [][]byte{active(textAt, []byte("HELLO")), active(textAt, []byte("hel")), active(textAt+4, []byte("o"))}}, image: true, stdout: "helLo"},
		{name: "start function", odd: odd{segments: [][]byte{active(textAt, hello)}, starts: true}, image: true, stdout: "hellohello"},
		{name: "counted, not used", odd: odd{segments: [][]byte{active(textAt, hello)}, counted: true}, image: true, stdout: "hello"},
		{name: "passive segment", odd: odd{segments: [][]byte{passive(hello)}, counted: true,
			before: []byte{0x41, textAt, 0x41, 0, 0x41, 5, 0xfc, 8, 1, 0}}, stdout: "hello"}, // memory.init
		{name: "passive segment, not used", odd: odd{segments: [][]byte{active(textAt, hello), passive([]byte("other"))}}, stdout: "hello"},
		{name: "code that copies from an active segment", odd: odd{segments: [][]byte{active(textAt, hello)}, counted: true,
			before: []byte{0x41, textAt, 0x41, 0, 0x41, 5, 0xfc, 8, 1, 0}}, stdout: "hello"}, // gone by then, says the specification; wazero keeps it
		{name: "code that drops an active segment", odd: odd{segments: [][]byte{active(textAt, hello)}, counted: true,
			before: []byte{0xfc, 9, 1}}, stdout: "hello"}, // data.drop
		{name: "code that copies from a dropped segment", odd: odd{segments: [][]byte{passive(hello)}, counted: true,
			before: []byte{0xfc, 9, 1, 0x41, textAt, 0x41, 0, 0x41, 5, 0xfc, 8, 1, 0}}, trap: "out of bounds memory access"},
		{name: "memory copied and filled", odd: odd{segments: [][]byte{active(32, hello)},
			before: []byte{0x41, textAt, 0x41, 32, 0x41, 5, 0xfc, 10, 0, 0, 0x41, textAt, 0x41, 0xc8, 0, 0x41, 1, 0xfc, 11, 0}}, image: true, stdout: "Hello"},
		{name: "segment that names its memory", odd: odd{segments: [][]byte{slices.Concat([]byte{2, 0}, at(textAt), sized(hello))}}, stdout: "hello"},
		{name: "tail call", odd: odd{segments: [][]byte{active(textAt, hello)}, before: []byte{0x12, 2}}, image: true, stdout: "hello"}, // return_call
		{name: "segment at a computed address", odd: odd{segments: [][]byte{slices.Concat([]byte{0, 0x41, textAt - 6, 0x41, 6, 0x6a, 0x0b}, sized(hello))}}, stdout: "hello"},
		{name: "exception", odd: odd{before: []byte{0x08, 0}}, refused: "it uses exception handling"}, // throw
		{name: "segment beyond the memory", odd: odd{segments: [][]byte{active(4<<16-2, hello)}}, refused: "out of bounds"},
		{name: "imported memory", odd: odd{memories: [][]byte{}, imports: []byte("\x03env\x06memory\x02\x00\x04")}, refused: "env"},
		{name: "imported memory and one of its own", odd: odd{imports: []byte("\x03env\x06memory\x02\x00\x04")}, refused: "at most one"},
		{name: "two memories", odd: odd{memories: [][]byte{{0, 4}, {0, 4}}}, refused: "memor"},
		{name: "no memory", odd: odd{memories: [][]byte{}}, refused: "memory"},
		{name: "memory that may be shared", odd: odd{memories: [][]byte{{3, 4, 4}}}, refused: "memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bothWays(t, eachStep(), func(skip compile.Steps) (*bench, string) {
				b := newBench(t, "")
				fillData(t, b.bundle.Rootfs)
				if err := os.WriteFile(filepath.Join(b.bundle.Rootfs, "app.wasm"), c.odd.module(), 0o644); err != nil {
					t.Fatal(err)
				}
				return b, ""
			}, func(t *testing.T, skip compile.Steps, got ending) {
				if (got.refused != "") != (c.refused != "") || !strings.Contains(got.refused, c.refused) {
					t.Errorf("error %q, want %q in it", got.refused, c.refused)
				}
				if c.trap != "" && (got.code != 134 || !strings.Contains(got.message, c.trap)) {
					t.Errorf("%+v, want the trap %q", got, c.trap)
				}
				if c.trap == "" && c.refused == "" && got.code != 0 || got.stdout != c.stdout {
					t.Errorf("%+v, want %q", got, c.stdout)
				}
				if want := c.image && skip&compile.StepImage == 0; c.refused == "" && got.load.ImageSize > 0 != want {
					t.Errorf("the memory has an image: %+v, want %v", got.load, want)
				}
			})
		})
	}
}
