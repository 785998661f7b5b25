// Package generate writes programs that use much of what Go's compiler knows: arithmetic of all
// widths, slices, maps, strings, structs, closures, methods, interfaces, generics, goroutines with
// channels and select, defers, panics, jumps, large frames and deep recursion. A program prints a
// checksum for each of its functions, and does the same in each run. There are no endless ones:
// what loops or calls spends from a bounded fund.
package generate

import (
	"fmt"
	"go/format"
	"math/rand/v2"
	"strings"
)

// functions is how many a program has: one compilation covers them all.
const functions = 40

// generator writes one program.
type generator struct {
	*rand.Rand
	out    strings.Builder
	all    []signature
	scope  []variable
	names  int // given so far
	nest   int // of statements
	loops  []string
	single bool // within a function literal: no label, result or loop of the function around it is in reach
}

// variable is one in scope.
type variable struct {
	name string
	of   kind
}

// signature is that of a function that is written. All have a depth and an int64 as their first
// parameters.
type signature struct {
	name    string
	params  []kind
	results []kind
}

// Program returns the source of the program of a seed.
func Program(seed uint64) string {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 13))}
	g.out.WriteString(prelude)
	for i := range functions {
		s := signature{name: fmt.Sprint("f", i)}
		for range g.IntN(5) {
			s.params = append(s.params, g.kind())
		}
		for range 1 + g.IntN(3) {
			s.results = append(s.results, g.plainKind())
		}
		g.all = append(g.all, s)
	}
	for _, s := range g.all {
		g.function(s)
	}
	g.out.WriteString(leafPrelude)
	for n := range leaves {
		g.leaf(n)
	}
	g.callLeaves()
	g.main()
	source, err := format.Source([]byte(g.out.String()))
	if err != nil {
		return g.out.String() // which the compiler says more about
	}
	return string(source)
}

func (g *generator) f(format string, args ...any) { fmt.Fprintf(&g.out, format, args...) }

// name is a new name.
func (g *generator) name(prefix string) string {
	g.names++
	return fmt.Sprint(prefix, g.names)
}

// one in n.
func (g *generator) one(n int) bool { return g.IntN(n) == 0 }

// function writes a function.
func (g *generator) function(s signature) {
	g.scope, g.nest, g.loops, g.single = []variable{{"a", "int64"}}, 0, nil, false
	g.f("func %s(d int, a int64", s.name)
	for _, k := range s.params {
		v := variable{g.name("p"), k}
		g.scope = append(g.scope, v)
		g.f(", %s %s", v.name, k)
	}
	g.f(") (h uint64")
	var results []variable
	for _, k := range s.results[1:] {
		v := variable{g.name("r"), k}
		results = append(results, v)
		g.f(", %s %s", v.name, k)
	}
	g.f(") {\n\tif d <= 0 || !spend() {\n\t\treturn\n\t}\n")
	g.scope = append(g.scope, results...)
	if g.one(6) {
		g.f("\tvar big [%d]uint64\n\tbig[uint64(a)%%%d] = uint64(a)\n", 50+g.IntN(1500), 50)
		g.f("\tdefer func() { h = mix(h, big[uint64(a)%%50]) }()\n")
	}
	for range g.IntN(8) {
		g.declare()
	}
	g.block(3 + g.IntN(12))
	for _, v := range g.scope {
		if g.one(2) {
			g.f("\t%s\n", g.absorb(v))
		}
	}
	g.f("\treturn\n}\n\n")
}

// main calls every function with several arguments, one after the other, and then many at a time.
func (g *generator) main() {
	g.scope, g.single = []variable{{"a", "int64"}}, true
	g.f("func main() {\n")
	for i := range g.all {
		g.f("\tcase%d()\n", i)
		if i%4 == 3 {
			g.f("\tmeet(case%d, case%d, case%d, case%d)\n", i-3, i-2, i-1, i)
		}
	}
	g.f("\tleafs()\n\tprintln(\"total\", total)\n}\n\n")
	for i, s := range g.all {
		g.f("func case%d() {\n", i)
		for range 3 {
			g.f("\tguard(%q, func() (h uint64) {\n\t\ta := int64(%d)\n\t\t_ = a\n", s.name, int64(g.Uint64())>>g.IntN(63))
			g.f("\t\tx, _, _ := pad%d(%s)\n\t\treturn mix(h, x)\n\t})\n", len(s.results), g.call(s, fmt.Sprint(2+g.IntN(4)), 1))
		}
		g.f("}\n\n")
	}
}

// call calls a function.
func (g *generator) call(s signature, depth string, nest int) string {
	args := []string{depth, g.expr("int64", nest)}
	for _, k := range s.params {
		args = append(args, g.expr(k, nest))
	}
	return s.name + "(" + strings.Join(args, ", ") + ")"
}

// absorb is a statement that makes a variable part of the checksum.
func (g *generator) absorb(v variable) string {
	switch {
	case v.of.isNumber():
		return fmt.Sprintf("h = mix(h, uint64(%s))", v.name)
	case v.of == "float32" || v.of == "float64":
		return fmt.Sprintf("h = mix(h, math.Float64bits(float64(%s)))", v.name)
	case v.of == "bool":
		return fmt.Sprintf("if %s {\n\t\th++\n\t}", v.name)
	case v.of == "string" || v.of == "[]byte":
		return fmt.Sprintf("h = mixText(h, string(%s))", v.name)
	case v.of == "[]int64":
		return fmt.Sprintf("for _, e := range %s {\n\t\th = mix(h, uint64(e))\n\t}", v.name)
	case v.of == "complex128":
		return fmt.Sprintf("h = mix(h, math.Float64bits(real(%s)))", v.name)
	case v.of == "[8]uint16":
		return fmt.Sprintf("h = mix(h, uint64(%s[h&7]))", v.name)
	case v.of == "*node":
		return fmt.Sprintf("h = mix(h, %s.sum())", v.name)
	case v.of == "shape":
		return fmt.Sprintf("if %s != nil {\n\t\th = mix(h, uint64(%s.area(3)))\n\t}", v.name, v.name)
	case v.of == "map[int64]uint32":
		return fmt.Sprintf("for k, e := range %s {\n\t\th += uint64(k) * uint64(e)\n\t}", v.name)
	default:
		return fmt.Sprintf("if %s != nil {\n\t\th = mix(h, uint64(%s(a)))\n\t}", v.name, v.name)
	}
}
