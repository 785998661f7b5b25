package format

// Export is one export of a module.
type Export struct {
	Name  string
	Kind  byte
	Index uint32 // among those of its kind, the imported ones first
}

// Exports reads what a module exports. It declines with false what it does not understand.
func Exports(sections []Section) ([]Export, bool) {
	body := Find(sections, SectionExport)
	if len(body) == 0 {
		return nil, true
	}
	r := Reader{Rest: body}
	var exports []Export
	for range r.Number() {
		exports = append(exports, Export{Name: string(r.Bytes()), Kind: r.Octet(), Index: r.Number()})
		if r.Bad {
			return nil, false
		}
	}
	return exports, len(r.Rest) == 0
}

// Memories reads the memories that a module defines.
func Memories(sections []Section) ([]Limits, bool) {
	body := Find(sections, SectionMemory)
	if len(body) == 0 {
		return nil, true
	}
	r := Reader{Rest: body}
	var all []Limits
	for range r.Number() {
		all = append(all, r.Limits())
		if r.Bad {
			return nil, false
		}
	}
	return all, len(r.Rest) == 0
}

// Table is a table that a module defines.
type Table struct {
	Element byte
	Limits  Limits
}

// Tables reads the tables that a module defines. It declines with false what it does not
// understand.
func Tables(sections []Section) ([]Table, bool) {
	body := Find(sections, SectionTable)
	if len(body) == 0 {
		return nil, true
	}
	r := Reader{Rest: body}
	var all []Table
	for range r.Number() {
		all = append(all, Table{r.Octet(), r.Limits()})
		if r.Bad {
			return nil, false
		}
	}
	return all, len(r.Rest) == 0
}

// Functions reads the types of the functions that a module defines, as numbers of its types.
func Functions(sections []Section) ([]uint32, bool) {
	body := Find(sections, SectionFunction)
	if len(body) == 0 {
		return nil, true
	}
	r := Reader{Rest: body}
	var all []uint32
	for range r.Number() {
		all = append(all, r.Number())
		if r.Bad {
			return nil, false
		}
	}
	return all, len(r.Rest) == 0
}
