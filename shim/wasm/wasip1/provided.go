package wasip1

import "github.com/tetratelabs/wazero/api"

// Provided is a function that guests may import from the module ModuleName.
type Provided struct {
	Name            string
	Params, Results []api.ValueType
	Extension       bool // it is of the socket extension, not of the specification
}

// Functions lists what guests may import. A name of the socket extension may come several times, with different parameters.
func Functions() []Provided {
	i32 := []api.ValueType{api.ValueTypeI32}
	all := []Provided{{Name: "proc_exit", Params: i32}, {Name: "proc_raise", Params: i32, Results: i32}}
	for _, d := range definitions {
		all = append(all, Provided{Name: d.name, Params: d.types(), Results: i32})
	}
	for _, d := range extensions {
		all = append(all, Provided{Name: d.name, Params: d.types(), Results: i32, Extension: true})
	}
	return all
}
