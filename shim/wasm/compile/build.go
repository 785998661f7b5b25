package compile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

var errRefused = errors.New("module is not valid")

// compileInto makes the files of a module's entry in dir, with the steps that are not skipped and that
// the module allows.
func compileInto(dir string, module []byte, skip Steps) error {
	sections, err := split(module)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	lean, names := strip(sections)
	b := builder{dir: dir, skip: skip, lean: lean, names: names}
	b.facts.StartFunction = find(lean, sectionStart) != nil
	if err := b.light(); err != nil {
		return err
	}
	if b.module == nil {
		if err := b.plain(); err != nil {
			return err
		}
	}
	told, err := json.Marshal(b.facts)
	if err != nil {
		return err
	}
	return errors.Join(b.write(ModuleName, b.module), b.write(factsName, told))
}

// builder makes one entry.
type builder struct {
	dir   string
	skip  Steps
	lean  []section // the module without custom sections
	names *section

	module []byte // what guests load; nil until it is known
	facts  facts
}

func (b *builder) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(b.dir, name), data, 0o600)
}

// plain compiles the module as it is.
func (b *builder) plain() error {
	sections := b.lean
	if b.names != nil {
		sections = append(slices.Clip(sections), *b.names)
	}
	b.module = join(sections)
	return compileModule(b.dir, b.module, wazero.NewRuntimeConfig())
}

// light takes the steps. It leaves b.module nil if none can be taken: then plain finds out what the
// module is.
func (b *builder) light() error {
	if b.skip&AllSteps == AllSteps || !isOrdered(b.lean) {
		return nil
	}
	sections, ok := b.lean, false
	if b.skip&StepImage == 0 {
		sections, ok = b.takeData()
	}
	if !ok {
		if sections = b.lean; compileModule(b.dir, join(sections), wazero.NewRuntimeConfig()) != nil {
			return nil
		}
	}
	module := join(sections)
	if b.names != nil {
		b.facts.Load.Names = true
		if err := b.write(NamesName, b.names.body); err != nil {
			return err
		}
	}
	frame, err := b.takeBodies(sections)
	if err != nil {
		return err
	}
	if b.module = module; frame != nil {
		b.module = frame
	}
	return nil
}

// worth is the size in bytes from which data or code has a file of its own: opening and mapping one
// takes as long as copying as much.
const worth = 128 << 10

// takeData compiles the module without its data segments, whose image it writes, or declines with false.
func (b *builder) takeData() ([]section, bool) {
	img, ok := newImage(b.lean)
	if !ok || len(img.bytes) < worth {
		return nil, false
	}
	sections := without(b.lean, sectionData, sectionDataCount)
	if compileModule(b.dir, join(sections), wazero.NewRuntimeConfig()) != nil || b.write(ImageName, img.bytes) != nil {
		return nil, false
	}
	b.facts.Load.ImageAt, b.facts.Load.ImageSize = img.at, uint64(len(img.bytes))
	return sections, true
}

// takeBodies returns the frame of the module that has just been compiled, under whose name its machine code is from
// now on, or nil if that cannot be.
func (b *builder) takeBodies(sections []section) ([]byte, error) {
	entry := onlyFile(b.dir)
	if b.skip&StepBare != 0 || entry == "" || !isKnown() {
		return nil, nil
	}
	bodiless, ok := bare(sections)
	if !ok {
		return nil, nil
	}
	compiled, err := os.ReadFile(entry)
	if err != nil {
		return nil, err
	}
	code, ok := machineCode(compiled, functionCount(sections))
	if !ok {
		return nil, nil
	}
	frame := join(bodiless)
	name, err := b.nameOf(frame)
	if err != nil || name == "" {
		return nil, err
	}
	if err := os.Rename(entry, filepath.Join(filepath.Dir(entry), name)); err != nil {
		return nil, err
	}
	if !b.isFound(frame, name, compiled) {
		// What lies under that name now may be anything.
		return nil, errors.Join(os.Remove(filepath.Join(filepath.Dir(entry), name)), os.WriteFile(entry, compiled, 0o600))
	}
	b.facts.Load.Bare = true
	return frame, b.takeCode(code)
}

// takeCode writes the machine code to a file of its own.
func (b *builder) takeCode(code []byte) error {
	if b.skip&StepShare != 0 || len(code) < worth {
		return nil
	}
	padded := padCode(code)
	b.facts.Load.CodeSize = uint64(len(padded))
	return b.write(CodeName, padded)
}

// nameOf is the name that wazero's cache has for a module's machine code. "" = it cannot be told.
func (b *builder) nameOf(module []byte) (string, error) {
	dir, err := os.MkdirTemp(b.dir, "name-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if compileModule(dir, module, wazero.NewRuntimeConfigCompiler()) != nil {
		return "", nil
	}
	name := onlyFile(dir)
	if name == "" {
		return "", nil
	}
	return filepath.Base(name), nil
}

// isFound says whether wazero, loading the frame, takes the machine code under that name and leaves it as it is.
func (b *builder) isFound(frame []byte, name string, compiled []byte) bool {
	if compileModule(b.dir, frame, wazero.NewRuntimeConfigCompiler()) != nil {
		return false
	}
	file := onlyFile(b.dir)
	if filepath.Base(file) != name {
		return false
	}
	after, err := os.ReadFile(file)
	return err == nil && bytes.Equal(after, compiled)
}

// onlyFile is the path of the only file in wazero's cache below dir. Where it interprets there is none: "".
func onlyFile(dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil || len(files) != 1 {
		return ""
	}
	return files[0]
}

// isOrdered says whether nothing that is wrong with a module's data sections would be hidden by taking them
// away: each section is there once, the data sections are where they belong, and their counts agree.
func isOrdered(sections []section) bool {
	seen := map[byte]bool{}
	for i, s := range sections {
		if seen[s.id] {
			return false
		}
		seen[s.id] = true
		switch s.id {
		case sectionDataCount:
			if i+1 < len(sections) && sections[i+1].id != sectionCode && sections[i+1].id != sectionData {
				return false
			}
		case sectionData:
			if i != len(sections)-1 {
				return false
			}
		}
	}
	count, data := reader{rest: find(sections, sectionDataCount)}, reader{rest: find(sections, sectionData)}
	return !seen[sectionDataCount] || count.number() == data.number()
}

// compileModule validates the module and lets wazero write its machine code into dir.
func compileModule(dir string, module []byte, config wazero.RuntimeConfig) error {
	ctx := experimental.WithCompilationWorkers(context.Background(), runtime.GOMAXPROCS(0))
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return fmt.Errorf("open output directory: %w", err)
	}
	defer cache.Close(ctx)
	r := wazero.NewRuntimeWithConfig(ctx, Configure(config).WithCompilationCache(cache))
	compiled, err := r.CompileModule(ctx, module)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	for _, f := range compiled.ExportedFunctions() {
		if slices.Contains(f.ExportNames(), "_start") {
			return nil
		}
	}
	return fmt.Errorf("%w: it exports no function _start, so it is no command", errRefused)
}

// Configure is wazero as modules are compiled and run here. Both sides must agree: a cached entry is not
// validated again.
func Configure(config wazero.RuntimeConfig) wazero.RuntimeConfig {
	return config.WithDebugInfoEnabled(false)
}
