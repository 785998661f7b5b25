// Package component decodes the binary format of WebAssembly components, as far as
// github.com/WebAssembly/component-model has it in design/mvp/Binary.md (version 0x0d; with the
// asynchronous parts of WASI 0.3), into a graph without indices: what a definition refers to is a
// pointer to it. Aliases are followed while decoding: an alias is the same pointer as what it stands
// for, or an item that names the instance and the export.
//
// It validates only what the graph needs. Types are not compared, and core modules are not looked
// into. Everything is bounded (limits.go): decoding takes time and memory in proportion to the file,
// and what is not a component gets an Error.
package component

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Error says where a component cannot be decoded, and why. Its class is ErrInvalidArgument.
type Error struct {
	Offset int // in the file, in bytes
	Text   string
}

func (e *Error) Error() string {
	return fmt.Sprintf("component is not valid at byte %d: %s", e.Offset, e.Text)
}

// Unwrap returns the error's class.
func (e *Error) Unwrap() error { return errdefs.ErrInvalidArgument }

// Sort is a kind of definition. Each has an index space of its own.
type Sort uint8

// Sorts, with the type of Go that a definition is a pointer to.
const (
	SortCoreFunc     Sort = iota // CoreItem
	SortCoreTable                // CoreItem
	SortCoreMemory               // CoreItem
	SortCoreGlobal               // CoreItem
	SortCoreTag                  // CoreItem
	SortCoreType                 // CoreType
	SortCoreModule               // Module
	SortCoreInstance             // CoreInstance
	SortFunc                     // Func
	SortValue                    // Value
	SortType                     // Type
	SortComponent                // Component
	SortInstance                 // Instance
	sorts
)

// String is what the specification calls the sort.
func (s Sort) String() string {
	names := [...]string{
		"core function", "core table", "core memory", "core global", "core tag", "core type", "core module", "core instance",
		"function", "value", "type", "component", "instance",
	}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("sort %d", s)
}

// Component is a component, at the top of a file or within another one, or one that is imported.
type Component struct {
	Offset int // in the file, in bytes
	Size   int // in bytes

	Imports       []*Import
	Exports       []*Export
	Modules       []*Module       // that it contains
	Components    []*Component    // that it contains
	CoreInstances []*CoreInstance // in the order in which they are instantiated
	Instances     []*Instance     // that it makes, of components or of exports
	Canons        []*Canon
	Types         []*Type // that it defines
	Starts        []*Start
	Customs       []Custom

	Import *Import // of an imported one, of which Type is all that is known
	Type   *Type

	exports map[string]*Export
}

// Custom is a custom section.
type Custom struct {
	Name    string
	Offset  int
	Content []byte
}

// Item is a definition of any sort.
type Item struct {
	Sort Sort
	Def  any // see the sorts
}

// Extern is the name and type of an import or export.
type Extern struct {
	Name   string
	Offset int
	Sort   Sort
	// Type is that of functions, components, instances and values; of types the bound.
	Type *Type
	Core *CoreType // of a core module

	Implements    string // attribute: the interface that an instance of another name implements
	VersionSuffix string // attribute: what is left out of the version in the name
	ExternalID    string // attribute

	Fresh bool // it is a resource type of its own, not one that is known already
}

// Import is an import of a component.
type Import struct {
	Extern
	Component *Component // whose it is
}

// Export is an export of a component.
type Export struct {
	Name   string
	Offset int
	Item   Item
	As     *Extern // the type that it is given, nil = its own
	Implements,
	VersionSuffix,
	ExternalID string // see Extern
}

// Module is a core module.
type Module struct {
	Offset int
	Bytes  []byte // nil for an imported one

	Import *Import   // of an imported one
	Type   *CoreType // of an imported one
}

// CoreInstance is an instance of a core module, or a list of exports that stands for one.
type CoreInstance struct {
	Offset  int
	Module  *Module   // nil for a list of exports
	Args    []CoreArg // what the module is instantiated with
	Exports []CoreExport
	exports map[string]Item
}

// CoreArg gives one name of imported modules to an instance.
type CoreArg struct {
	Name     string
	Instance *CoreInstance
}

// CoreExport is one of a list of exports.
type CoreExport struct {
	Name string
	Item Item // a CoreItem
}

// CoreItem is a core function, table, memory, global or tag: an export of an instance of a module,
// or a function that a Canon defines.
type CoreItem struct {
	Offset   int
	Instance *CoreInstance // with Module
	Name     string
	Canon    *Canon
}

// Func is a function of the component level: a lifted one (Canon), an imported one, or an export of
// an instance.
type Func struct {
	Offset   int
	Type     *Type
	Canon    *Canon
	Import   *Import
	Instance *Instance
	Name     string
}

// Instance is an instance of the component level. Exactly one of Import, Component, Exports and
// Parent tells where it comes from.
type Instance struct {
	Offset    int
	Import    *Import
	Component *Component // it is an instance of
	Args      []Arg      // what the component is instantiated with
	Exports   []ItemName // a list of exports
	Parent    *Instance  // whose export Name it is
	Name      string

	Type   *Type           // of an imported one, or of an export of such a one
	within *Instance       // in the component that Parent is an instance of
	items  map[string]Item // of Args or Exports
}

// Arg gives one import to an instance of a component.
type Arg = ItemName

// ItemName is an item with a name.
type ItemName struct {
	Name string
	Item Item
}

// Value is a value of the component level.
type Value struct {
	Offset int
	Type   *Type
	Bytes  []byte // of one that is in the file
}

// Start is a function of the component level that is called when the component is instantiated.
type Start struct {
	Offset  int
	Func    *Func
	Args    []*Value
	Results int
}
