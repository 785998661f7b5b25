package format

// Export is one export of a module.
type Export struct {
	Name  string
	Kind  byte
	Index uint32 // among those of its kind, the imported ones first
}

// vector reads a section that lists things of one kind. It declines with false what one, or the
// section, is not understood to be.
func vector[T any](sections []Section, id byte, one func(*Reader) T) ([]T, bool) {
	body := Find(sections, id)
	if len(body) == 0 {
		return nil, true
	}
	r := Reader{Rest: body}
	var all []T
	for range r.Number() {
		all = append(all, one(&r))
		if r.Bad {
			return nil, false
		}
	}
	return all, !r.Bad && len(r.Rest) == 0
}

// Exports reads what a module exports. It declines with false what it does not understand.
func Exports(sections []Section) ([]Export, bool) {
	return vector(sections, SectionExport, func(r *Reader) Export {
		return Export{Name: string(r.Bytes()), Kind: r.Octet(), Index: r.Number()}
	})
}

// Memories reads the memories that a module defines.
func Memories(sections []Section) ([]Limits, bool) {
	return vector(sections, SectionMemory, (*Reader).Limits)
}

// Table is a table that a module defines.
type Table struct {
	Element byte
	Limits  Limits
}

// Tables reads the tables that a module defines. It declines with false what it does not
// understand.
func Tables(sections []Section) ([]Table, bool) {
	return vector(sections, SectionTable, func(r *Reader) Table { return Table{r.Octet(), r.Limits()} })
}

// Functions reads the types of the functions that a module defines, as numbers of its types.
func Functions(sections []Section) ([]uint32, bool) {
	return vector(sections, SectionFunction, (*Reader).Number)
}
