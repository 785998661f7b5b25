package compile

// Import is a function that a module imports. Types are as the binary format has them.
type Import struct {
	Module, Name    string
	Params, Results []byte
}

// Imports reads which functions a valid module imports, in their order. It declines with false types that
// it does not understand.
func Imports(module []byte) ([]Import, bool) {
	const sectionType, formFunction, kindFunction = 1, 0x60, 0
	sections, err := split(module)
	if err != nil {
		return nil, false
	}
	type signature struct{ params, results []byte }
	var types []signature
	if r := (reader{rest: find(sections, sectionType)}); len(r.rest) > 0 {
		for range r.number() {
			if r.octet() != formFunction {
				return nil, false
			}
			types = append(types, signature{r.bytes(), r.bytes()})
		}
		if r.bad || len(r.rest) > 0 {
			return nil, false
		}
	}
	imports := []Import{}
	if r := (reader{rest: find(sections, sectionImport)}); len(r.rest) > 0 {
		for range r.number() {
			from, name := string(r.bytes()), string(r.bytes())
			if len(r.rest) == 0 || r.rest[0] != kindFunction {
				if skipImport(&r); r.bad {
					return nil, false
				}
				continue
			}
			r.octet()
			i := r.number()
			if r.bad || uint64(i) >= uint64(len(types)) {
				return nil, false
			}
			imports = append(imports, Import{from, name, types[i].params, types[i].results})
		}
	}
	return imports, true
}
