package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
)

// Steps are what makes guests light and fast. Each is taken for a module for which it is
// understood.
type Steps uint

// The steps.
const (
	// StepImage takes the data segments out of the module into a file that guests map as their
	// memory.
	StepImage Steps = 1 << iota
	// StepBare leaves only the frame of the module to decode and validate: no function has a body,
	// and wazero finds the machine code in its cache by the frame.
	StepBare
	// StepShare keeps the machine code in a file that guests map, and a stub in wazero's cache. It
	// needs StepBare.
	StepShare
	// StepFold rewrites the functions of Go's modules (package gowasm).
	StepFold

	AllSteps = StepImage | StepBare | StepShare | StepFold
)

// Without returns the steps to skip by the switch of the configuration or of a pod: StepFold,
// unless Go modules are to be rewritten.
func Without(optimizeGo bool) Steps {
	if optimizeGo {
		return 0
	}
	return StepFold
}

// Files of an entry beside the module.
const (
	ImageName   = "memory.image"
	CodeName    = "code"
	OffsetsName = "offsets"
	NamesName   = "names"
)

// Load says how a guest process loads an entry. The zero value loads the module and nothing else.
type Load struct {
	// ImageAt is the address in linear memory that the file ImageName, ImageSize bytes, belongs
	// to. 0 bytes = no file.
	ImageAt   uint64 `json:"imageAt,omitempty"`
	ImageSize uint64 `json:"imageSize,omitempty"`
	// Bare says that the module has no bodies: its code must come from wazero's cache.
	Bare bool `json:"bare,omitempty"`
	// CodeSize is the size of the file CodeName, which is executable memory, and CodeSum its
	// CRC-32C. 0 bytes = no file.
	CodeSize uint64 `json:"codeSize,omitempty"`
	CodeSum  uint32 `json:"codeSum,omitempty"`
	// Names says that the functions' names are in the file NamesName and not in the module.
	Names bool `json:"names,omitempty"`
	// Component says that the module was made of a component, and imports WASI by the names that
	// packages wasip2 and wasip3 have for it.
	Component bool `json:"component,omitempty"`
	// HTTP says that it is a component that answers HTTP requests: the module exports
	// lower.HandleName or lower.HandlerName.
	HTTP bool `json:"http,omitempty"`
}

// facts is what a child reports beside its files, in the file factsName.
type facts struct {
	StartFunction bool          `json:"startFunction,omitempty"`
	Load          Load          `json:"load"`
	Go            gowasm.Result `json:"go,omitzero"`
}

const (
	factsName = "facts"
	maxFacts  = 4 << 10
)

// takeFacts reads and removes the facts. They come from a process that has read a hostile module:
// what a guest process would rely on is checked against the files.
func takeFacts(dir string) (facts, error) {
	name := filepath.Join(dir, factsName)
	var f facts
	info, err := os.Lstat(name)
	if err != nil {
		return facts{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFacts {
		return facts{}, errors.New("facts of compiler are no plain small file")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return facts{}, err
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return facts{}, fmt.Errorf("decode facts of compiler: %w", err)
	}
	if err := f.Load.check(dir); err != nil {
		return facts{}, err
	}
	return f, os.Remove(name)
}

// check compares what is to be loaded with the files that are there.
func (l Load) check(dir string) error {
	const maxMemory = 1 << 32
	if l.ImageAt%imageAlign != 0 || l.ImageSize%imageAlign != 0 || l.ImageAt > maxMemory || l.ImageSize > maxMemory-l.ImageAt {
		return errors.New("image of memory lies outside of it")
	}
	if l.CodeSize%imageAlign != 0 || l.CodeSize > 0 && !l.Bare {
		return errors.New("machine code is no whole pages or without its module")
	}
	if offsets, err := os.Lstat(filepath.Join(dir, OffsetsName)); (err == nil) != (l.CodeSize > 0) || err == nil && offsets.Size()%offsetSize != 0 {
		return errors.New("machine code is without its offsets, or they without it")
	}
	for name, want := range map[string]uint64{ImageName: l.ImageSize, CodeName: l.CodeSize} {
		info, err := os.Lstat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist) && want == 0:
		case err != nil:
			return err
		case uint64(info.Size()) != want:
			return fmt.Errorf("file %q has %d bytes, not %d", name, info.Size(), want)
		}
	}
	return nil
}
