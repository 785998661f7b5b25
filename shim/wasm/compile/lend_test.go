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

// loadLent has wazero load the frame of an entry.
func loadLent(t *testing.T, dir string, before ...[]byte) (wazero.Runtime, wazero.CompiledModule) {
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

// lentCode is the code of an entry, as executable memory.
func lentCode(t *testing.T, e Entry) ([]byte, []int) {
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

// TestLentCodeRuns runs a function that is nowhere but in the file of the machine code.
func TestLentCodeRuns(t *testing.T) {
	e := heavyEntry(t, StepImage)
	r, module := loadLent(t, e.Dir)
	code, offsets := lentCode(t, e)
	if Sum(code) != e.Load.CodeSum || len(offsets) != heavyFunctions || !slices.IsSorted(offsets) {
		t.Fatalf("sum %x, load %+v; %d functions", Sum(code), e.Load, len(offsets))
	}
	if err := Lend(module, code, offsets); err != nil {
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

func TestCodeIsNotLent(t *testing.T) {
	e := heavyEntry(t, 0)
	code, offsets := lentCode(t, e)
	_, plain := loadLent(t, heavyEntry(t, StepShare).Dir)
	if err := Lend(plain, code, offsets); err == nil {
		t.Error("a module that has code got other code")
	}
	_, second := loadLent(t, e.Dir, []byte("\x00asm\x01\x00\x00\x00"))
	if err := Lend(second, code, offsets); err == nil {
		t.Error("code was lent beside another module")
	}
	_, one := loadLent(t, e.Dir)
	if err := Lend(one, code, append(slices.Clip(offsets), len(code))); err == nil {
		t.Error("a function begins behind the code")
	}
	if err := Lend(one, code, offsets); err != nil {
		t.Fatal(err)
	}
	if err := Lend(one, code, offsets); err == nil {
		t.Error("code was lent twice")
	}
}
