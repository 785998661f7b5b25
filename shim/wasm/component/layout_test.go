package component

import "testing"

// Layouts of values, by the rules of the specification.
func TestLayout(t *testing.T) {
	prim := func(k Kind) *Type {
		p := &Type{Kind: k}
		p.layout = p.layOut()
		return p
	}
	made := func(t Type) *Type {
		t.layout = t.layOut()
		return &t
	}
	text := made(Type{Kind: Option, Of: prim(String)})
	other := make([]Field, 37) // the error-code of wasi:filesystem@0.3
	other[36].Type = text
	code := made(Type{Kind: Variant, Fields: other})
	instant := made(Type{Kind: Record, Fields: []Field{{Type: prim(S64)}, {Type: prim(U32)}}})
	ipv6 := made(Type{Kind: Record, Fields: []Field{{Type: prim(U16)}, {Type: prim(U32)}, {Type: made(Type{Kind: FixedList, Of: prim(U16), Length: 8})}, {Type: prim(U32)}}})
	for name, c := range map[string]struct {
		of   *Type
		want Layout
	}{
		"u8":                    {prim(U8), Layout{1, 1}},
		"char":                  {prim(Char), Layout{4, 4}},
		"option<string>":        {text, Layout{12, 4}},
		"error-code":            {code, Layout{16, 4}},
		"result<_, error-code>": {made(Type{Kind: Result, Else: code}), Layout{20, 4}},
		"result":                {made(Type{Kind: Result}), Layout{1, 1}},
		"instant":               {instant, Layout{16, 8}},
		"option<instant>":       {made(Type{Kind: Option, Of: instant}), Layout{24, 8}},
		"ipv6-socket-address":   {ipv6, Layout{28, 4}},
		"300 cases":             {made(Type{Kind: Enum, Fields: make([]Field, 300)}), Layout{2, 2}},
		"9 flags":               {made(Type{Kind: Flags, Fields: make([]Field, 9)}), Layout{2, 2}},
		"33 flags":              {made(Type{Kind: Flags, Fields: make([]Field, 33)}), Layout{8, 4}},
		"own":                   {prim(Own), Layout{4, 4}},
		"a list without end":    {made(Type{Kind: FixedList, Of: made(Type{Kind: FixedList, Of: prim(U64), Length: 1<<32 - 1}), Length: 1<<32 - 1}), Layout{maxSize, 8}},
	} {
		if got := c.of.Layout(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
