package generate

import (
	"fmt"
	"strings"
)

// variable picks a variable of a kind; "" = none.
func (g *generator) variable(k kind) string {
	var names []string
	for _, v := range g.scope {
		if v.of == k {
			names = append(names, v.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return pick(g, names)
}

// expr is an expression that is no constant, so that what does not fit a constant's type does not
// matter.
func (g *generator) expr(k kind, nest int) string {
	if v := g.variable(k); v != "" && (nest <= 0 || g.one(3)) {
		return v
	}
	if k.isNumber() {
		return g.integer(k, nest-1)
	}
	switch k {
	case "float32", "float64":
		return g.float(k, nest-1)
	case "bool":
		return g.condition(nest - 1)
	case "string":
		return g.text(nest - 1)
	case "complex128":
		return fmt.Sprintf("complex(%s, float64(%s))", g.expr("float64", nest-1), g.expr("int16", nest-1))
	default:
		return g.compound(k, nest-1)
	}
}

// from is a variable of another kind of integer, converted.
func (g *generator) from(k kind) string {
	if v := g.variable(pick(g, integers())); v != "" {
		return fmt.Sprintf("%s(%s)", k, v)
	}
	return fmt.Sprintf("%s(a)", k)
}

// literal is a constant that fits an integer.
func (g *generator) literal(k kind) string {
	bits := map[kind]int{"int8": 7, "int16": 15, "int32": 31, "int64": 63, "int": 63, "uint8": 8, "uint16": 16, "uint32": 32}[k]
	if bits == 0 {
		bits = 64
	}
	value := g.Uint64() >> (64 - bits) >> g.IntN(bits)
	if k.isSigned() && g.one(3) {
		return fmt.Sprint(-int64(value))
	}
	return fmt.Sprint(value)
}

// operand may be a constant.
func (g *generator) operand(k kind, nest int) string {
	if g.one(3) {
		return g.literal(k)
	}
	return g.expr(k, nest)
}

// integer is an expression of an integer kind.
func (g *generator) integer(k kind, nest int) string {
	if nest < 0 {
		return g.from(k)
	}
	switch g.IntN(20) {
	case 0, 1, 2, 3:
		return fmt.Sprintf("(%s %s %s)", g.expr(k, nest), pick(g, []string{"+", "-", "*", "&", "|", "^", "&^"}), g.operand(k, nest))
	case 4:
		return fmt.Sprintf("(%s %s (%s & %d))", g.expr(k, nest), pick(g, []string{"<<", ">>"}), g.expr("uint", nest), pick(g, []int{7, 31, 63, 127}))
	case 5:
		return fmt.Sprintf("(%s %s %d)", g.expr(k, nest), pick(g, []string{"<<", ">>"}), g.IntN(70))
	case 6:
		return fmt.Sprintf("(%s %s (%s | 1))", g.expr(k, nest), pick(g, []string{"/", "%"}), g.expr(k, nest))
	case 7:
		return fmt.Sprintf("(%s %s %d)", g.expr(k, nest), pick(g, []string{"/", "%"}), 1+g.IntN(120))
	case 8:
		if g.one(4) { // which may be 0
			return fmt.Sprintf("(%s %s %s)", g.expr(k, nest), pick(g, []string{"/", "%"}), g.expr(k, nest))
		}
		return fmt.Sprintf("(%s%s)", pick(g, []string{"-", "^", "+"}), g.expr(k, nest))
	case 9:
		return fmt.Sprintf("%s(%s)", k, g.expr(pick(g, integers()), nest))
	case 10:
		return fmt.Sprintf("%s(%s)", k, g.expr(pick(g, []kind{"float32", "float64"}), nest))
	case 11:
		return fmt.Sprintf("%s(%s)", k, g.bits(nest))
	case 12:
		return fmt.Sprintf("%s(%s, %s)", pick(g, []string{"min", "max"}), g.expr(k, nest), g.operand(k, nest))
	case 13:
		return fmt.Sprintf("%s[%s](%s, %s)", pick(g, []string{"least", "turn"}), k, g.expr(k, nest), g.expr(k, nest))
	case 14:
		if !g.single {
			if s := pick(g, g.all); len(s.results) == 1 && g.nest < 3 {
				return fmt.Sprintf("%s(%s)", k, g.call(s, "d-1", 0))
			}
		}
		return g.from(k)
	default:
		return fmt.Sprintf("%s(%s)", k, g.element(nest))
	}
}

// bits is a call of what wazero has instructions for.
func (g *generator) bits(nest int) string {
	switch g.IntN(5) {
	case 0:
		return fmt.Sprintf("bits.%s(%s)", pick(g, []string{"LeadingZeros64", "TrailingZeros64", "OnesCount64", "Len64"}), g.expr("uint64", nest))
	case 1:
		return fmt.Sprintf("bits.%s(%s)", pick(g, []string{"LeadingZeros32", "TrailingZeros32", "OnesCount32", "ReverseBytes32"}), g.expr("uint32", nest))
	case 2:
		return fmt.Sprintf("bits.RotateLeft64(%s, %s)", g.expr("uint64", nest), g.expr("int", nest))
	case 3:
		return fmt.Sprintf("high(%s, %s)", g.expr("uint64", nest), g.expr("uint64", nest))
	default:
		return fmt.Sprintf("bits.RotateLeft32(%s, %d)", g.expr("uint32", nest), g.IntN(40))
	}
}

// element is a number out of something that holds several.
func (g *generator) element(nest int) string {
	index := g.expr("int", nest)
	switch g.IntN(16) {
	case 0, 1:
		return fmt.Sprintf("at(%s, %s)", g.expr("[]int64", nest), index)
	case 2:
		return fmt.Sprintf("%s[(%s)&%d]", g.expr("[]int64", nest), index, pick(g, []int{3, 7, 15})) // which may be outside
	case 3, 4:
		if v := g.variable("[8]uint16"); v != "" {
			return fmt.Sprintf("%s[(%s)&7]", v, index)
		}
		return fmt.Sprintf("table[uint(%s)%%uint(len(table))]", index)
	case 5:
		return fmt.Sprintf("%s.area(%s)", g.expr("shape", nest), index)
	case 6, 7:
		return fmt.Sprintf("%s.%s", g.expr("*node", nest), pick(g, []string{"a", "b", "c", "e", "inner.x", "inner.y", "next.a"}))
	case 8:
		return fmt.Sprintf("%s[%s]", g.expr("map[int64]uint32", nest), g.operand("int64", nest))
	case 9:
		return fmt.Sprintf("%s(%s)", g.expr("func(int64) int64", nest), g.operand("int64", nest))
	case 10:
		return fmt.Sprintf("len(%s)", g.expr(pick(g, []kind{"string", "[]byte", "[]int64", "map[int64]uint32"}), nest))
	case 11:
		return fmt.Sprintf("char(%s, %s)", g.expr("string", nest), index)
	case 12:
		return fmt.Sprintf("%s.sum()", g.expr("*node", nest))
	case 13:
		return fmt.Sprintf("sumOf(%s, %s, %s)", g.expr("int64", nest), g.expr("int64", nest), g.operand("int64", nest))
	case 14:
		return fmt.Sprintf("classify(%s)", g.expr(g.kind(), nest))
	default:
		return fmt.Sprintf("recurse(%d, %s)", g.IntN(60), g.operand("int64", nest))
	}
}

func (g *generator) float(k kind, nest int) string {
	if nest < 0 {
		return fmt.Sprintf("%s(%s)", k, g.from("int32"))
	}
	switch g.IntN(6) {
	case 0, 1, 2:
		return fmt.Sprintf("(%s %s %s)", g.expr(k, nest), pick(g, []string{"+", "-", "*", "/"}), g.expr(k, nest))
	case 3:
		return fmt.Sprintf("%s(math.%s(%s))", k, pick(g, []string{"Sqrt", "Floor", "Ceil", "Trunc", "Abs", "RoundToEven"}), g.expr("float64", nest))
	case 4:
		return fmt.Sprintf("(%s * %d.%d)", g.expr(k, nest), g.IntN(100), g.IntN(100))
	default:
		return fmt.Sprintf("%s(%s)", k, g.expr(pick(g, append(integers(), "float32", "float64")), nest))
	}
}

func (g *generator) condition(nest int) string {
	if nest < 0 {
		return fmt.Sprintf("(%s&%d == 0)", g.from("int64"), 1<<g.IntN(4))
	}
	compare := pick(g, []string{"==", "!=", "<", "<=", ">", ">="})
	switch g.IntN(9) {
	case 0:
		return fmt.Sprintf("(%s %s %s)", g.condition(nest-1), pick(g, []string{"&&", "||", "==", "!="}), g.condition(nest-1))
	case 1:
		return "!" + g.expr("bool", nest)
	case 2:
		k := pick(g, []kind{"string", "float32", "float64"})
		return fmt.Sprintf("(%s %s %s)", g.expr(k, nest), compare, g.expr(k, nest))
	case 3:
		k := pick(g, []kind{"shape", "*node", "[8]uint16", "complex128"})
		return fmt.Sprintf("(%s %s %s)", g.expr(k, nest), pick(g, []string{"==", "!="}), g.expr(k, nest))
	default:
		k := pick(g, integers())
		return fmt.Sprintf("(%s %s %s)", g.expr(k, nest), compare, g.operand(k, nest))
	}
}

func (g *generator) text(nest int) string {
	if nest < 0 {
		return fmt.Sprintf("words[uint(%s)%%uint(len(words))]", g.from("int"))
	}
	switch g.IntN(6) {
	case 0, 1:
		return fmt.Sprintf("join(%s, %s)", g.expr("string", nest), g.expr("string", nest))
	case 2:
		return fmt.Sprintf("part(%s, %s, %s)", g.expr("string", nest), g.expr("int", nest), g.expr("int", nest))
	case 3:
		return fmt.Sprintf("string(%s)", g.expr("[]byte", nest))
	case 4:
		return fmt.Sprintf("string(rune(%s&0xffff))", g.expr("int32", nest))
	default:
		return fmt.Sprintf("%s.name", g.expr("*node", nest))
	}
}

// compound is a value of a kind that has parts.
func (g *generator) compound(k kind, nest int) string {
	a := g.expr("int64", min(nest, 1))
	switch k {
	case "[]byte":
		return fmt.Sprintf("[]byte(%s)", g.expr("string", nest))
	case "[]int64":
		if v := g.variable(k); v != "" && g.one(2) {
			return pick(g, []string{
				fmt.Sprintf("cut(%s, %s, %s)", v, a, g.expr("int64", 0)), fmt.Sprintf("append(%s, %s)", v, a),
				fmt.Sprintf("mapped(%s, %s)", v, g.expr("func(int64) int64", 0)), fmt.Sprintf("%s[:len(%s):len(%s)]", v, v, v),
			})
		}
		return fmt.Sprintf("ints(%s)", a)
	case "[8]uint16":
		return fmt.Sprintf("[8]uint16{%d: uint16(%s), 7: %s}", g.IntN(7), a, g.operand("uint16", 0))
	case "*node":
		if g.one(12) {
			return fmt.Sprintf("nodes(%s).next.next", a)
		}
		return fmt.Sprintf("nodes(%s)", a)
	case "shape":
		return fmt.Sprintf("shapes(%s)", a)
	case "map[int64]uint32":
		return fmt.Sprintf("mapOf(%s)", a)
	default:
		return g.closure(nest)
	}
}

// closure is a function literal, or a method as a value.
func (g *generator) closure(nest int) string {
	switch g.IntN(4) {
	case 0:
		return fmt.Sprintf("%s.add", g.expr("*node", min(nest, 0)))
	case 1:
		if v := g.variable(pick(g, integers())); v != "" && v != "a" && !strings.HasPrefix(v, "loop") {
			return fmt.Sprintf("func(z int64) int64 { %s++; return z + int64(%s) }", v, v)
		}
	}
	before := g.scope
	single := g.single
	g.scope, g.single = append(g.scope[:len(g.scope):len(g.scope)], variable{"z", "int64"}), true
	body := g.expr("int64", min(nest, 1))
	g.scope, g.single = before, single
	return fmt.Sprintf("func(z int64) int64 { return z ^ %s }", body)
}
