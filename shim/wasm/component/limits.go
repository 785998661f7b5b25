package component

// Bounds of a file. wasmparser, which every common tool writes and reads components with, has the
// same kinds of bounds. The largest component of the common toolchains that was seen (CPython) has
// 14 modules and fewer than 3000 definitions.
const (
	maxDepth       = 16       // of components and of their types, within each other
	maxTypeDepth   = 100      // of value types
	maxModules     = 1000     // core modules
	maxComponents  = 1000     // with the nested ones
	maxDefinitions = 100_000  // of all sorts
	maxParts       = 1 << 20  // fields, cases, parameters, arguments, exports of lists, options
	maxName        = 100_000  // bytes of one
	maxNames       = 16 << 20 // bytes of all
)
