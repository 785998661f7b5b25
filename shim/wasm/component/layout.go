package component

// Layout is how a value lies in memory, in bytes.
type Layout struct{ Size, Align uint64 }

// maxSize bounds a value in memory; that of a larger one is cut, so that it is refused where it
// matters.
const maxSize = 1 << 32

// Layout is that of a value of the type, by design/mvp/CanonicalABI.md ("Alignment" and "Element
// Size"), for memories of 32 bits.
func (t *Type) Layout() Layout { return t.layout }

// layOut computes the layout from what the parts of the type have.
func (t *Type) layOut() Layout {
	switch t.Kind {
	case Bool, S8, U8:
		return Layout{1, 1}
	case S16, U16:
		return Layout{2, 2}
	case S64, U64, F64:
		return Layout{8, 8}
	case String, List, Map:
		return Layout{8, 4}
	case Record, Tuple:
		return record(t.Fields)
	case Variant:
		return variant(len(t.Fields), t.Fields)
	case Enum:
		return variant(len(t.Fields), nil)
	case Option, Result:
		return variant(2, []Field{{Type: t.Of}, {Type: t.Else}})
	case FixedList:
		return Layout{min(t.Of.layout.Size*uint64(t.Length), maxSize), t.Of.layout.Align}
	case Flags:
		return flags(len(t.Fields))
	}
	return Layout{4, 4}
}

func record(fields []Field) Layout {
	all := Layout{0, 1}
	for _, f := range fields {
		l := f.Type.layout
		all.Align = max(all.Align, l.Align)
		all.Size = min(up(all.Size, l.Align)+l.Size, maxSize)
	}
	return Layout{up(all.Size, all.Align), all.Align}
}

// variant is the layout of one of n cases, of which these have a value.
func variant(n int, cases []Field) Layout {
	which := Layout{1, 1}
	switch {
	case n > 1<<16:
		which = Layout{4, 4}
	case n > 1<<8:
		which = Layout{2, 2}
	}
	most := Layout{0, 1}
	for _, c := range cases {
		if c.Type != nil {
			most = Layout{max(most.Size, c.Type.layout.Size), max(most.Align, c.Type.layout.Align)}
		}
	}
	align := max(which.Align, most.Align)
	return Layout{up(up(which.Size, most.Align)+most.Size, align), align}
}

func flags(n int) Layout {
	switch {
	case n <= 8:
		return Layout{1, 1}
	case n <= 16:
		return Layout{2, 2}
	}
	return Layout{4 * uint64((n+31)/32), 4}
}

// up is the next multiple of a power of two.
func up(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// IsNumber says whether a value of the type is a number: an instance can pass no other
// values to itself through streams and futures. Neither a bool nor a char counts as one.
func (t *Type) IsNumber() bool { return t.Kind >= S8 && t.Kind <= F64 }
