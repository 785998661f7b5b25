// Package inspect says what a WebAssembly file is: what it imports and whether the host has that,
// what it exports, its memories, where it comes from, what takes its room, and why it would be
// refused. It reads; nothing is compiled or run here. What only compiling tells is added by
// Compiled.
package inspect

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/component/merge"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
)

// Kinds of files.
const (
	KindModule    = "core module"
	KindComponent = "component"
	KindOther     = "not WebAssembly"
)

// Report is what is known of a file.
type Report struct {
	Kind      string              `json:"kind"`
	Digest    string              `json:"digest"` // "sha256:…"
	Size      int64               `json:"size"`   // bytes
	Imports   []Group             `json:"imports"`
	Exports   []Export            `json:"exports"`
	Memories  []Memory            `json:"memories"`
	Tables    []Table             `json:"tables"`
	Functions int                 `json:"functions"` // that the module defines
	Sections  Sections            `json:"sections"`
	Toolchain []string            `json:"toolchain"`
	Producers map[string][]string `json:"producers,omitempty"` // the producers section: names and versions by field
	Features  []string            `json:"features,omitempty"`  // the target_features section
	Component *Component          `json:"component,omitempty"`
	Light     Light               `json:"light"`
	Go        *gowasm.Result      `json:"go,omitempty"` // what happened to the functions of a module of Go's, where that was asked for
	Refused   []string            `json:"refused"`      // why no guest can be made of it; empty = one can
	Notes     []string            `json:"notes,omitempty"`
	Checked   bool                `json:"compiled"` // what compiling it shows is in Light and Refused

	unfit     bool // the engine will refuse to compile it, for a reason in Refused
	obstacles compile.Obstacles
}

// Group is what a module imports from one other.
type Group struct {
	Module  string   `json:"module"`
	Imports []Import `json:"imports"`
}

// Import is one import.
type Import struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Type string `json:"type"`
	Host string `json:"host"` // one of the constants below
}

// Export is one export.
type Export struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Type string `json:"type,omitempty"` // of a function
}

// Memory is a linear memory, in pages of 64 KiB.
type Memory struct {
	Imported bool    `json:"imported,omitempty"`
	Initial  uint64  `json:"initialPages"`
	Max      *uint64 `json:"maxPages,omitempty"` // nil = as much as there is
	Shared   bool    `json:"shared,omitempty"`
	Wide     bool    `json:"wide,omitempty"` // 64-bit addresses
}

// Table is a table, in elements.
type Table struct {
	Imported bool    `json:"imported,omitempty"`
	Element  string  `json:"element"`
	Initial  uint64  `json:"initial"`
	Max      *uint64 `json:"max,omitempty"`
}

// Sections is how many bytes the parts of a file take.
type Sections struct {
	Code  int64 `json:"code"`
	Data  int64 `json:"data"`
	Names int64 `json:"names"`
	DWARF int64 `json:"dwarf"`
	Other int64 `json:"other"` // all else, the header too
}

// Module inspects a file, also one that is a component.
func Module(file []byte) Report {
	sum := sha256.Sum256(file)
	r := Report{
		Kind: KindModule, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(file)), Toolchain: []string{}, Refused: []string{},
		Imports: []Group{}, Exports: []Export{}, Memories: []Memory{}, Tables: []Table{},
	}
	if err := binfmt.CheckModule(file[:min(binfmt.WasmHeader, len(file))]); err != nil {
		switch {
		case binfmt.IsComponent(file):
			r.Kind = KindComponent
			r.component(file)
			return r
		case len(file) < binfmt.WasmHeader || !binfmt.IsWasm(file):
			r.Kind = KindOther
		}
		r.refuse("%s", told(err))
		return r
	}
	sections, err := format.Split(file)
	if err != nil {
		r.refuse("the module is not valid: %v", err)
		return r
	}
	if part := merge.Unsupported(file); part != "" {
		r.refuse("it uses %s, which is not accepted here", part)
	}
	r.obstacles = compile.FindObstacles(sections)
	r.measure(sections)
	r.read(sections)
	r.origin(sections)
	r.Light = r.expected()
	return r
}

// refuse adds a reason for which the engine does not compile the module.
func (r *Report) refuse(text string, args ...any) {
	r.unfit = true
	r.Refused = append(r.Refused, fmt.Sprintf(text, args...))
}

// told is the text of an error without its class.
func told(err error) string {
	text := strings.TrimSuffix(err.Error(), ": "+errdefs.ErrInvalidArgument.Error())
	return strings.TrimSuffix(text, ": "+errdefs.ErrResourceExhausted.Error())
}

// measure adds the sizes of sections.
func (r *Report) measure(sections []format.Section) {
	r.Sections.Other = r.Size
	r.Sections.add(sections)
	if r.Sections.Names == 0 && r.Sections.Code > 0 {
		r.Notes = append(r.Notes, "its functions have no names but those of exports: the stack of a trap shows numbers")
	}
}

// add counts sections by what they are, and not in Other any more.
func (all *Sections) add(sections []format.Section) {
	add := func(to *int64, s format.Section) {
		*to += int64(len(s.Raw))
		all.Other -= int64(len(s.Raw))
	}
	for _, s := range sections {
		name := ""
		if s.ID == format.SectionCustom {
			name, _ = s.Custom()
		}
		switch {
		case s.ID == format.SectionCode:
			add(&all.Code, s)
		case s.ID == format.SectionData:
			add(&all.Data, s)
		case name == "name":
			add(&all.Names, s)
		case strings.HasPrefix(name, ".debug_"):
			add(&all.DWARF, s)
		}
	}
}

// Compiled adds what compiling the module has shown, or the error that it ended with.
//
// # Errors
//
// Those that say nothing of the module.
func (r *Report) Compiled(e compile.Entry, err error) error {
	if errdefs.IsInvalidArgument(err) || errdefs.IsResourceExhausted(err) {
		if !r.unfit {
			r.refuse("%s", told(err))
		}
		r.Light, r.Checked = Light{}, true
		return nil
	}
	if err != nil {
		return err
	}
	if r.unfit {
		return errors.New("it compiled, although it should be refused: " + strings.Join(r.Refused, "; "))
	}
	r.Light, r.Checked = known(e.Load, r.obstacles), true
	if e.Go != (gowasm.Result{}) {
		r.Go = &e.Go
	}
	return nil
}
