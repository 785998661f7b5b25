package compile

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sunaba-project/sunaba/shim/wasm/linear"
)

// randomModules is how many modules are run.
const randomModules = 60

// outcomes calls each function of an instance several times. It returns what comes of each call,
// and what the memory is after it.
func outcomes(m api.Module) (all []string) {
	memory := func() string {
		content, _ := m.Memory().Read(0, m.Memory().Size())
		return fmt.Sprintf("%d bytes, %x", len(content), crc32.ChecksumIEEE(content))
	}
	all = append(all, memory())
	names := []string{}
	for name := range m.ExportedFunctionDefinitions() {
		if name != "_start" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, param := range []uint64{0, 1, 65535, 1 << 31} {
			results, err := m.ExportedFunction(name).Call(context.Background(), param)
			why, _, _ := strings.Cut(fmt.Sprint(err), "\n")
			all = append(all, fmt.Sprintf("%s(%d): %x, %s, %s", name, param, results, why, memory()))
		}
	}
	return all
}

// asItComes runs a module without any step.
func asItComes(t *testing.T, module []byte, config wazero.RuntimeConfig) []string {
	t.Helper()
	r := wazero.NewRuntimeWithConfig(context.Background(), Configure(config))
	defer r.Close(context.Background())
	m, err := r.InstantiateWithConfig(context.Background(), module, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	return outcomes(m)
}

// fromEntry runs a module from an entry, as guests are, and returns how it was loaded.
func fromEntry(t *testing.T, module []byte) ([]string, Load) {
	t.Helper()
	e := Entry{Dir: t.TempDir()}
	if err := compileInto(e.Dir, module, 0); err != nil {
		t.Fatal(err)
	}
	f, err := takeFacts(e.Dir)
	if err != nil {
		t.Fatal(err)
	}
	e.Load = f.Load
	pool := linear.New(linear.Options{})
	if e.Load.ImageSize > 0 {
		image, err := os.Open(filepath.Join(e.Dir, ImageName))
		if err != nil {
			t.Fatal(err)
		}
		pool.SetImage(linear.Image{File: image, At: e.Load.ImageAt, Size: e.Load.ImageSize}) // which closes it
	}
	r, compiled := loadEntry(t, e.Dir)
	defer r.Close(context.Background())
	if e.Load.CodeSize > 0 {
		code, offsets := mapEntryCode(t, e)
		if err := LinkCode(compiled, code, offsets); err != nil {
			t.Fatal(err)
		}
	}
	m, err := linear.Instantiate(experimental.WithMemoryAllocator(context.Background(), pool), r, compiled)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes(m), e.Load
}

// TestRandomModulesDoTheSame runs random modules as they come, interpreted, and from entries.
func TestRandomModulesDoTheSame(t *testing.T) {
	calls, trapped, images, shared := 0, map[string]int{}, 0, 0
	for seed := range uint64(randomModules) {
		g := &generated{rand: rand.New(rand.NewPCG(seed, 1))}
		module := g.module()
		want := asItComes(t, module, wazero.NewRuntimeConfigCompiler())
		interpreted := asItComes(t, module, wazero.NewRuntimeConfigInterpreter())
		got, load := fromEntry(t, module)
		for name, other := range map[string][]string{"interpreted": interpreted, "from its entry": got} {
			for i := range want {
				if other[i] != want[i] {
					t.Errorf("seed %d, %s: %s\nand not %s", seed, name, other[i], want[i])
					break // the memory is another one from then on
				}
			}
		}
		for _, s := range want[1:] {
			calls++
			if _, why, is := strings.Cut(s, "wasm error: "); is {
				why, _, _ = strings.Cut(why, ",")
				trapped[why]++
			}
		}
		images += min(1, int(load.ImageSize))
		shared += min(1, int(load.CodeSize))
	}
	t.Logf("%d calls, traps %v, %d images, %d with shared code", calls, trapped, images, shared)
	if images < randomModules/4 || shared == 0 || len(trapped) < 5 || trapped["out of bounds memory access"] > calls*3/4 {
		t.Errorf("%d calls, traps %v, %d images, %d with shared code: that is too little", calls, trapped, images, shared)
	}
}
