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
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/shim/wasm/component/merge"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

var (
	errRefused   = errors.New("module is not valid")
	errComponent = errors.New("component cannot run")
)

// compileInto makes the files of a module's entry in dir, with the steps that are not skipped and
// that the module allows. A component is lowered to a module first.
func compileInto(dir string, module []byte, skip Steps) error {
	component := binfmt.IsComponent(module)
	if component {
		lowered, err := lower.Lower(module)
		if err != nil {
			return fmt.Errorf("%w: %w", errComponent, err)
		}
		module, skip = lowered.Module, skip|StepFold // its functions are not of one toolchain
	}
	sections, err := format.Split(module)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	if !component && exportsHandler(sections) {
		return fmt.Errorf("%w: it exports a function that answers HTTP requests, which is for components", errRefused)
	}
	lean, names := format.Strip(sections)
	if names == nil {
		names = format.ExportNames(lean) // better than numbers, in the stack of a trap
	}
	b := builder{dir: dir, skip: skip, whole: sections, lean: lean, names: names}
	b.facts.Load.Component, b.facts.Load.HTTP = component, component && exportsHandler(sections)
	b.facts.StartFunction = format.Find(lean, format.SectionStart) != nil
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
	whole []format.Section // the module as it came
	lean  []format.Section // without custom sections
	names *format.Section

	module []byte // what guests load; nil until it is known
	facts  facts
}

func (b *builder) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(b.dir, name), data, 0o600)
}

// plain compiles the module as it is.
func (b *builder) plain() error {
	sections := b.lean
	b.facts.Go = gowasm.Result{}
	if b.names != nil {
		sections = append(slices.Clip(sections), *b.names)
	}
	b.module = format.Join(sections)
	err := compileModule(b.dir, b.module, wazero.NewRuntimeConfig())
	if err == nil {
		return nil
	}
	if part := merge.Unsupported(b.module); part != "" {
		return fmt.Errorf("%w: it uses %s, which is not accepted here", errRefused, part)
	}
	return err
}

// light takes the steps. It leaves b.module nil if none can be taken: then plain finds out what is
// wrong with the module.
func (b *builder) light() error {
	if b.skip&AllSteps == AllSteps || !isOrdered(b.lean) {
		return nil
	}
	lean := b.optimized()
	sections, ok := lean, false
	if b.skip&StepImage == 0 {
		sections, ok = b.takeData(lean)
	}
	if !ok {
		if sections = lean; compileModule(b.dir, format.Join(sections), wazero.NewRuntimeConfig()) != nil {
			return nil
		}
	}
	module := format.Join(sections)
	if b.names != nil {
		b.facts.Load.Names = true
		if err := b.write(NamesName, b.names.Body); err != nil {
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

// optimized returns the module without custom sections, and with the functions rewritten if it is
// one of Go's linker.
func (b *builder) optimized() []format.Section {
	if b.skip&StepFold != 0 {
		return b.lean
	}
	var sections []format.Section
	sections, b.facts.Go = gowasm.Optimize(b.whole)
	lean, _ := format.Strip(sections)
	return lean
}

// takeData compiles the module without its data segments, and writes their image. It returns false
// if the step is not taken.
func (b *builder) takeData(lean []format.Section) ([]format.Section, bool) {
	img, declined := worthyImage(lean)
	if declined != "" {
		return nil, false
	}
	sections := format.Without(lean, format.SectionData, format.SectionDataCount)
	if compileModule(b.dir, format.Join(sections), wazero.NewRuntimeConfig()) != nil || b.write(ImageName, img.bytes) != nil {
		return nil, false
	}
	b.facts.Load.ImageAt, b.facts.Load.ImageSize = img.at, uint64(len(img.bytes))
	return sections, true
}

// takeBodies returns the frame of the module that has just been compiled, and renames the machine
// code so that wazero finds it by the frame. It returns nil if the step is not taken.
func (b *builder) takeBodies(sections []format.Section) ([]byte, error) {
	entry := onlyFile(b.dir)
	if b.skip&StepBare != 0 || entry == "" || wazeroversion.Check() != nil {
		return nil, nil
	}
	bodiless, ok := withoutBodies(sections)
	if !ok {
		return nil, nil
	}
	if b.facts.Load.Component {
		bodiless = canonical.JoinImports(bodiless)
	}
	compiled, err := os.ReadFile(entry)
	if err != nil {
		return nil, err
	}
	parts, ok := parseCacheFile(compiled, functionCount(sections))
	if !ok {
		return nil, nil
	}
	frame := format.Join(bodiless)
	name, err := b.nameOf(frame)
	if err != nil || name == "" {
		return nil, err
	}
	if err := os.Rename(entry, filepath.Join(filepath.Dir(entry), name)); err != nil {
		return nil, err
	}
	moved := filepath.Join(filepath.Dir(entry), name)
	if !b.isFound(frame, name, compiled) {
		// What lies under that name now may be anything.
		return nil, errors.Join(os.Remove(moved), os.WriteFile(entry, compiled, 0o600))
	}
	b.facts.Load.Bare = true
	return frame, b.takeCode(frame, moved, compiled, parts)
}

// takeCode moves the machine code from wazero's cache file into a file of its own, if wazero takes
// the stub that stays.
func (b *builder) takeCode(frame []byte, entry string, compiled []byte, parts cacheFile) error {
	stubbed := parts.withStub()
	if b.skip&StepShare != 0 || len(parts.code) < Worth || stubbed == nil {
		return nil
	}
	if err := os.WriteFile(entry, stubbed, 0o600); err != nil {
		return err
	}
	if !b.isLinkable(frame, entry, stubbed) {
		return os.WriteFile(entry, compiled, 0o600)
	}
	padded := padCode(parts.code)
	b.facts.Load.CodeSize, b.facts.Load.CodeSum = uint64(len(padded)), Sum(padded)
	return errors.Join(b.write(CodeName, padded), b.write(OffsetsName, parts.encodeOffsets()))
}

// isLinkable says whether wazero, loading the frame, takes the stub, leaves its file as it is, and
// keeps the stub where LinkCode looks for it.
func (b *builder) isLinkable(frame []byte, entry string, stubbed []byte) bool {
	ctx := context.Background()
	cache, err := wazero.NewCompilationCacheWithDir(b.dir)
	if err != nil {
		return false
	}
	defer cache.Close(ctx)
	r := wazero.NewRuntimeWithConfig(ctx, Configure(wazero.NewRuntimeConfigCompiler()).WithCompilationCache(cache))
	module, err := r.CompileModule(ctx, frame)
	if err != nil {
		return false
	}
	_, err = findCode(module)
	after, readErr := os.ReadFile(entry)
	return err == nil && readErr == nil && bytes.Equal(after, stubbed) && onlyFile(b.dir) == entry
}

// nameOf returns the name of the file in wazero's cache for a module's machine code, "" if it
// cannot be told.
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

// isFound says whether wazero, loading the frame, takes the machine code under that name and
// leaves its file as it is.
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

// onlyFile returns the path of the only file in wazero's cache below dir, "" where wazero
// interprets.
func onlyFile(dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil || len(files) != 1 {
		return ""
	}
	return files[0]
}

// isOrdered says whether taking away the data sections hides no fault of the module: there is one
// of each section, the data sections are in their places, and their counts agree.
func isOrdered(sections []format.Section) bool {
	seen := map[byte]bool{}
	for i, s := range sections {
		if seen[s.ID] {
			return false
		}
		seen[s.ID] = true
		switch s.ID {
		case format.SectionDataCount:
			if i+1 < len(sections) && sections[i+1].ID != format.SectionCode && sections[i+1].ID != format.SectionData {
				return false
			}
		case format.SectionData:
			if i != len(sections)-1 {
				return false
			}
		}
	}
	count, data := format.Reader{Rest: format.Find(sections, format.SectionDataCount)}, format.Reader{Rest: format.Find(sections, format.SectionData)}
	return !seen[format.SectionDataCount] || count.Number() == data.Number()
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
	exports := compiled.ExportedFunctions()
	if f := exports["_start"]; f != nil && len(f.ParamTypes()) > 0 {
		return fmt.Errorf("%w: its function _start has parameters, so it is no command", errRefused)
	}
	for name := range exports {
		if isEntry(name) {
			return nil
		}
	}
	return fmt.Errorf("%w: it exports no function _start, so it is no command", errRefused)
}

// features are version 2 of WebAssembly, and of version 3 tail calls and constants that are computed.
const features = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst

// isEntry says whether a function of this name is one that guests are run by.
func isEntry(name string) bool { return name == "_start" || lower.IsHandle(name) }

// exportsHandler says whether a component that was lowered answers HTTP requests.
func exportsHandler(sections []format.Section) bool {
	exports, _ := format.Exports(sections)
	return slices.ContainsFunc(exports, func(e format.Export) bool { return lower.IsHandle(e.Name) && e.Kind == format.KindFunction })
}

// Configure returns the configuration of wazero with which modules are compiled and run. Both
// sides must agree: a cached entry is not validated again.
func Configure(config wazero.RuntimeConfig) wazero.RuntimeConfig {
	return config.WithDebugInfoEnabled(false).WithCoreFeatures(features)
}
