package generate

import "fmt"

// depth is how deep statements nest.
const depth = 3

// block writes statements. What they declare ends with it.
func (g *generator) block(n int) {
	before := g.scope
	g.scope = g.scope[:len(g.scope):len(g.scope)]
	g.nest++
	for range n {
		g.statement()
	}
	g.nest--
	g.scope = before
}

// inner is a block of a statement.
func (g *generator) inner() {
	if g.nest >= depth {
		g.simple()
		return
	}
	g.block(1 + g.IntN(4))
}

func (g *generator) statement() {
	if g.nest > depth {
		g.simple()
		return
	}
	switch g.IntN(24) {
	case 0, 1, 2:
		g.declare()
	case 3, 4, 5:
		g.branch()
	case 6, 7, 8:
		g.loop()
	case 9:
		g.choose()
	case 10:
		g.chooseType()
	case 11:
		g.attempt()
	case 12:
		g.later()
	case 13:
		g.concurrent()
	case 14:
		g.jump()
	case 15, 16:
		g.callStatement()
	case 17:
		g.leave()
	default:
		g.simple()
	}
}

// declare makes a variable.
func (g *generator) declare() {
	k := g.kind()
	v := variable{g.name("v"), k}
	if g.one(6) {
		g.f("var %s %s\n_ = %s\n", v.name, k, v.name)
	} else {
		g.f("var %s %s = %s\n_ = %s\n", v.name, k, g.expr(k, 3), v.name)
	}
	g.scope = append(g.scope, v)
}

// target picks a variable that may be set.
func (g *generator) target() (variable, bool) {
	var may []variable
	for _, v := range g.scope {
		if v.name != "a" && v.name[0] != 'k' { // of loops
			may = append(may, v)
		}
	}
	if len(may) == 0 {
		return variable{}, false
	}
	return pick(g, may), true
}

// simple is a statement without others in it.
func (g *generator) simple() {
	v, ok := g.target()
	if !ok || g.one(6) {
		g.f("h = mix(h, uint64(%s))\n", g.expr("int64", 2))
		return
	}
	if g.one(9) {
		g.f("%s\n", g.absorb(v))
		return
	}
	if g.one(25) {
		g.f("runtime.Gosched()\n")
		return
	}
	switch {
	case v.of.isNumber():
		switch g.IntN(4) {
		case 0:
			g.f("%s%s\n", v.name, pick(g, []string{"++", "--"}))
		case 1:
			g.f("%s %s %s\n", v.name, pick(g, []string{"+=", "-=", "*=", "^=", "|=", "&="}), g.operand(v.of, 2))
		default:
			g.f("%s = %s\n", v.name, g.expr(v.of, 3))
		}
	case v.of == "map[int64]uint32" && g.one(2):
		g.f("if %s != nil && len(%s) < 60 {\n%s[%s] += %s\n}\n", v.name, v.name, v.name, g.expr("int64", 1), g.operand("uint32", 1))
	case v.of == "[]int64" && g.one(2):
		g.f("if len(%s) > 0 {\n%s[uint(%s)%%uint(len(%s))] = %s\n}\n", v.name, v.name, g.expr("int", 1), v.name, g.expr("int64", 1))
	case v.of == "[8]uint16":
		g.f("%s[(%s)&7] %s %s\n", v.name, g.expr("int", 1), pick(g, []string{"=", "+=", "^="}), g.expr("uint16", 2))
	case v.of == "*node" && g.one(2):
		g.f("if %s != nil {\n", v.name)
		g.f("%s.%s\n}\n", v.name, pick(g, []string{
			"a += " + g.expr("int64", 1), "inner = pair{a, " + g.expr("int64", 1) + "}", "list = append(" + v.name + ".list, a)[:min(len(" + v.name + ".list)+1, 20)]",
			"name = " + g.expr("string", 0), "e++", "next = nodes(" + g.expr("int64", 0) + ")", "b <<= 3",
		}))
	default:
		g.f("%s = %s\n", v.name, g.expr(v.of, 2))
	}
}

func (g *generator) branch() {
	g.f("if %s {\n", g.condition(2))
	g.inner()
	for g.one(3) {
		g.f("} else if %s {\n", g.condition(1))
		g.inner()
	}
	if g.one(2) {
		g.f("} else {\n")
		g.inner()
	}
	g.f("}\n")
}

// loop writes a loop, which may have a label that something in it uses.
func (g *generator) loop() {
	label := ""
	if g.one(2) {
		label = g.name("L")
		g.f("%s:\n", label)
	}
	before := g.scope
	g.scope = g.scope[:len(g.scope):len(g.scope)]
	k := g.name("k")
	switch g.IntN(7) {
	case 0:
		g.f("for %s := 0; %s < %d; %s++ {\n", k, k, 1+g.IntN(9), k)
		g.scope = append(g.scope, variable{k, "int"})
	case 1:
		g.f("for %s := range %s & 7 {\n", k, g.expr("uint8", 1))
		g.scope = append(g.scope, variable{k, "uint8"})
	case 2:
		v := g.name("k")
		g.f("for %s, %s := range %s {\n_ = %s\n", k, v, g.expr("[]int64", 1), v)
		g.scope = append(g.scope, variable{k, "int"}, variable{v, "int64"})
	case 3:
		v := g.name("k")
		g.f("for %s, %s := range %s {\n_ = %s\n", k, v, g.expr("string", 1), v)
		g.scope = append(g.scope, variable{k, "int"}, variable{v, "int32"})
	case 4:
		v := g.name("k")
		g.f("for %s, %s := range %s {\n_ = %s\n", k, v, g.expr("map[int64]uint32", 0), v)
		g.scope = append(g.scope, variable{k, "int64"}, variable{v, "uint32"})
	case 5:
		g.f("for %s := range func(yield func(int64) bool) {\nfor i := range %s & 7 {\nif !yield(i) {\nreturn\n}\n}\n} {\n", k, g.expr("int64", 1))
		g.scope = append(g.scope, variable{k, "int64"})
	default:
		g.f("for %s := %s; %s; %s /= 2 {\n", k, g.expr("uint32", 1), "("+k+" > 3)", k)
		g.scope = append(g.scope, variable{k, "uint32"})
	}
	g.f("_ = %s\nif !spend() {\nbreak\n}\n", k)
	g.loops = append(g.loops, label)
	g.inner()
	if label != "" {
		g.f("if %s {\n%s %s\n}\n", g.condition(1), pick(g, []string{"continue", "break"}), label)
	}
	g.inner()
	g.loops = g.loops[:len(g.loops)-1]
	g.scope = before
	g.f("}\n")
}

// leave leaves a loop, or the function.
func (g *generator) leave() {
	g.f("if %s {\n", g.condition(2))
	switch n := len(g.loops); {
	case n > 0 && g.one(2):
		g.f("%s %s\n", pick(g, []string{"continue", "break"}), pick(g, g.loops))
	case g.one(3):
		g.f("panic(%s)\n", pick(g, []string{`"thrown"`, "int(h)", g.expr("string", 0), g.expr("int", 1)}))
	case !g.single:
		g.f("return\n")
	}
	g.f("}\n")
}

// choose is a switch.
func (g *generator) choose() {
	if g.one(3) {
		g.f("switch {\n")
		for range 1 + g.IntN(4) {
			g.f("case %s:\n", g.condition(1))
			g.scoped(g.inner)
		}
	} else {
		g.f("switch %s & 15 {\n", g.expr("int", 2))
		next := 0
		for range 1 + g.IntN(8) {
			g.f("case %d", next)
			for g.one(3) {
				next++
				g.f(", %d", next)
			}
			next++
			g.f(":\n")
			g.scoped(g.inner)
			if g.one(4) {
				g.f("fallthrough\ncase %d:\n", next)
				next++
				g.simple()
			}
		}
	}
	if g.one(2) {
		g.f("default:\n")
		g.scoped(g.inner)
	}
	g.f("}\n")
}

// scoped writes something in which an unnamed break means another statement than the loop: it is
// not used there.
func (g *generator) scoped(write func()) {
	loops := g.loops
	g.loops = nil
	for _, l := range loops {
		if l != "" {
			g.loops = append(g.loops, l)
		}
	}
	write()
	g.loops = loops
}

func (g *generator) chooseType() {
	k := g.name("k")
	g.f("switch %s := any(%s).(type) {\n", k, g.expr(g.kind(), 1))
	before := g.scope
	for _, of := range []kind{"int64", "uint8", "*node", "shape", "string"} {
		if g.one(2) {
			g.f("case %s:\n_ = %s\n", of, k)
			g.scope = append(g.scope[:len(g.scope):len(g.scope)], variable{k, of})
			g.scoped(g.inner)
			g.scope = before
		}
	}
	g.f("default:\nh = mix(h, uint64(classify(%s)))\n}\n", k)
}

// literal functions have no way out of the function around them.
func (g *generator) apart(write func()) {
	single, loops := g.single, g.loops
	g.single, g.loops = true, nil
	write()
	g.single, g.loops = single, loops
}

// attempt recovers from what happens in it.
func (g *generator) attempt() {
	g.f("func() {\ndefer func() {\nif r := recover(); r != nil {\nh = mix(h, tell(r))\n}\n}()\n")
	g.apart(g.inner)
	if g.one(3) {
		g.f("_ = %s[%s]\n", g.expr("[]int64", 0), "uint("+g.expr("int", 1)+")")
	}
	g.f("}()\n")
}

// later defers.
func (g *generator) later() {
	if g.one(3) {
		g.f("for i := range %d {\ndefer func(x uint64) {\nh = mix(h, x+uint64(i))\n}(h)\n}\n", 1+g.IntN(4))
		return
	}
	g.f("defer func() {\n")
	g.apart(g.simple)
	g.f("}()\n")
}

// concurrent has goroutines that send.
func (g *generator) concurrent() {
	c := g.name("c")
	n := 1 + g.IntN(4)
	g.f("%s := make(chan int64, %d)\n", c, g.IntN(3))
	g.f("for i := range int64(%d) {\ngo func() {\n", n)
	if g.one(2) {
		g.f("runtime.Gosched()\n")
	}
	g.f("%s <- recurse(int(i)*7, i)\n}()\n}\n", c)
	g.f("for range %d {\n", n)
	if g.one(2) {
		g.f("h = mix(h, uint64(<-%s))\n", c)
	} else {
		g.f("select {\ncase x, ok := <-%s:\nif ok {\nh = mix(h, uint64(x))\n}\ncase <-(chan int)(nil):\nh++\n", c)
		g.f("}\n")
	}
	g.f("}\n")
	if g.one(4) {
		g.f("h = deep(%d, h)\n", 100+g.IntN(400))
	}
}

// jump goes forward over statements that declare nothing.
func (g *generator) jump() {
	if g.single {
		g.simple()
		return
	}
	l := g.name("G")
	g.f("{\nif %s {\ngoto %s\n}\n", g.condition(1), l)
	g.simple()
	if g.one(2) {
		g.f("if %s {\ngoto %s\n}\n", g.condition(1), l)
		g.simple()
	}
	g.f("%s:\nh++\n}\n", l)
}

// callStatement calls another function, and takes what it returns.
func (g *generator) callStatement() {
	if g.nest > 2 && !g.one(3) {
		g.simple()
		return
	}
	s := pick(g, g.all)
	names := fmt.Sprint(g.name("r"))
	made := []variable{{names, "uint64"}}
	for _, k := range s.results[1:] {
		v := variable{g.name("r"), k}
		made = append(made, v)
		names += ", " + v.name
	}
	g.f("%s := %s\n", names, g.call(s, "d-1", 1))
	for _, v := range made {
		g.f("_ = %s\n", v.name)
	}
	g.f("h = mix(h, %s)\n", made[0].name)
	g.scope = append(g.scope, made...)
}
