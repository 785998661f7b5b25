package compile

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

// loadEntry has wazero load the frame of an entry.
func loadEntry(t *testing.T, dir string, before ...[]byte) (wazero.Runtime, wazero.CompiledModule) {
	t.Helper()
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close(context.Background()) })
	r := wazero.NewRuntimeWithConfig(context.Background(), Configure(wazero.NewRuntimeConfigCompiler()).WithCompilationCache(cache))
	for _, module := range before {
		if _, err := r.CompileModule(context.Background(), module); err != nil {
			t.Fatal(err)
		}
	}
	frame, err := os.ReadFile(filepath.Join(dir, ModuleName))
	if err != nil {
		t.Fatal(err)
	}
	module, err := r.CompileModule(context.Background(), frame)
	if err != nil {
		t.Fatal(err)
	}
	return r, module
}

// mapEntryCode is the code of an entry, as executable memory.
func mapEntryCode(t *testing.T, e Entry) ([]byte, []int) {
	t.Helper()
	f, err := os.Open(filepath.Join(e.Dir, CodeName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err := unix.Mmap(int(f.Fd()), 0, int(e.Load.CodeSize), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	offsets, err := Offsets(e.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return code, offsets
}

func heavyEntry(t *testing.T, skip Steps) Entry {
	t.Helper()
	e, err := Ensure(context.Background(), Options{CacheDir: t.TempDir(), Skip: skip}, writeModule(t, heavy()), "")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestLinkedCodeRuns runs a function that is nowhere but in the file of the machine code.
func TestLinkedCodeRuns(t *testing.T) {
	e := heavyEntry(t, StepImage)
	r, module := loadEntry(t, e.Dir)
	code, offsets := mapEntryCode(t, e)
	if Sum(code) != e.Load.CodeSum || len(offsets) != heavyFunctions || !slices.IsSorted(offsets) {
		t.Fatalf("sum %x, load %+v; %d functions", Sum(code), e.Load, len(offsets))
	}
	if err := LinkCode(module, code, offsets); err != nil {
		t.Fatal(err)
	}
	instance, err := r.InstantiateModule(context.Background(), module, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	if !instance.Memory().Write(0, []byte{1, 2, 3, 4}) {
		t.Fatal("its memory is too small")
	}
	if _, err := instance.ExportedFunction("_start").Call(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, _ := instance.Memory().Read(0, 4); !slices.Equal(got, make([]byte, 4)) {
		t.Errorf("memory %v: the function did nothing", got)
	}
}

func TestCodeIsNotLinked(t *testing.T) {
	e := heavyEntry(t, 0)
	code, offsets := mapEntryCode(t, e)
	_, plain := loadEntry(t, heavyEntry(t, StepShare).Dir)
	if err := LinkCode(plain, code, offsets); err == nil {
		t.Error("a module that has code got other code")
	}
	_, second := loadEntry(t, e.Dir, []byte("\x00asm\x01\x00\x00\x00"))
	if err := LinkCode(second, code, offsets); err == nil {
		t.Error("code was linked beside another module")
	}
	_, one := loadEntry(t, e.Dir)
	if err := LinkCode(one, code, append(slices.Clip(offsets), len(code))); err == nil {
		t.Error("a function begins behind the code")
	}
	if err := LinkCode(one, code, offsets); err != nil {
		t.Fatal(err)
	}
	if err := LinkCode(one, code, offsets); err == nil {
		t.Error("code was linked twice")
	}
}
