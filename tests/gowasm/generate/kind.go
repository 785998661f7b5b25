package generate

import "slices"

// kind is a type, as it is written.
type kind string

// Kinds of variables.
func integers() []kind {
	return []kind{"int8", "int16", "int32", "int64", "int", "uint8", "uint16", "uint32", "uint64", "uint"}
}

func others() []kind {
	return []kind{"float32", "float64", "bool", "string", "complex128", "[]byte", "[]int64", "[8]uint16", "*node", "shape",
		"map[int64]uint32", "func(int64) int64"}
}

func (k kind) isNumber() bool { return slices.Contains(integers(), k) }

// isSigned says whether an integer has negative values.
func (k kind) isSigned() bool { return k[0] == 'i' }

// kind picks any kind, and plainKind one that a result has after the checksum.
func (g *generator) kind() kind {
	if g.one(2) {
		return pick(g, integers())
	}
	return pick(g, others())
}

func (g *generator) plainKind() kind {
	return pick(g, append(integers(), "float64", "string", "*node", "[]int64", "shape"))
}

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }
