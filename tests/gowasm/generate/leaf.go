package generate

import "fmt"

// leaves is how many leaf functions a program has.
const leaves = 60

// leafPrelude is what leaf functions work on: records that point to each other, so that no pointer
// is nil.
const leafPrelude = `type record struct {
	x, y, w, z int64
	kind       uint8
	n          int32
	next, peer *record
	pix        []uint8
	sums       [8]int64
}

func records(a int64) *record {
	all := make([]record, 5)
	for i := range all {
		r := &all[i]
		r.x, r.y, r.w, r.z, r.kind, r.n = a, a>>i, int64(i), -a, uint8(i), int32(a)
		r.next, r.peer, r.pix = &all[(i+1)%5], &all[(i+2)%5], make([]uint8, 16+i)
		for k := range r.pix {
			r.pix[k] = uint8(a >> k)
		}
	}
	return &all[0]
}

func (r *record) sum() (h uint64) {
	for range 5 {
		h = mix(mix(mix(h, uint64(r.x^r.y)), uint64(r.w^r.z)), uint64(r.n))
		for _, v := range r.sums {
			h = mix(h, uint64(v))
		}
		h = mixText(h, string(r.pix))
		r = r.next
	}
	return h
}

`

// leaf writes a function that calls nothing: it goes many ways past the fields behind a few
// pointers, and leaves on some of them.
func (g *generator) leaf(n int) {
	g.f("func (p *record) leaf%d(q *record, a int64) (r int64) {\n", n)
	if g.one(2) {
		g.f("s := p.%s\n_ = s\n", pick(g, []string{"next", "peer"}))
	} else {
		g.f("s := q\n_ = s\n")
	}
	for range 3 + g.IntN(6) {
		g.leafStatement(0)
	}
	g.f("return r + %s\n}\n\n", g.field())
}

// callLeaves writes the calls.
func (g *generator) callLeaves() {
	g.f("func leafs() {\nfor i := range int64(6) {\np := records(i*%d - i)\n", 1+g.IntN(1<<30))
	for n := range leaves {
		g.f("guard(\"leaf%d\", func() uint64 { return mix(p.sum(), uint64(p.leaf%d(p.next.next, i*%d))) })\n", n, n, g.IntN(1000))
	}
	g.f("println(p.sum())\n}\n}\n\n")
}

func (g *generator) pointer() string {
	return pick(g, []string{"p", "p", "p", "q", "q", "s", "p.next", "q.peer"})
}

// field is a number behind a pointer.
func (g *generator) field() string {
	switch p := g.pointer(); g.IntN(8) {
	case 0:
		return fmt.Sprintf("int64(%s.kind)", p)
	case 1:
		return fmt.Sprintf("int64(%s.n)", p)
	case 2:
		return fmt.Sprintf("int64(%s.pix[(a+%d)&15])", p, g.IntN(16))
	case 3:
		return fmt.Sprintf("%s.sums[r&7]", p)
	default:
		return p + "." + pick(g, []string{"x", "y", "w", "z"})
	}
}

func (g *generator) leafCondition() string {
	text := fmt.Sprintf("%s %s %s", g.field(), pick(g, []string{"<", "<=", "==", "!=", ">"}), pick(g, []string{g.field(), g.field(), "a", "r", fmt.Sprint(g.IntN(9))}))
	if g.one(3) {
		text += pick(g, []string{" && ", " || "}) + fmt.Sprintf("%s&%d == 0", g.field(), 1<<g.IntN(6))
	}
	return text
}

func (g *generator) leafBlock(nest int) {
	for range 1 + g.IntN(3) {
		g.leafStatement(nest + 1)
	}
}

func (g *generator) leafStatement(nest int) {
	kinds := 10
	if nest >= depth {
		kinds = 4
	}
	switch g.IntN(kinds) {
	case 0:
		g.f("r %s %s\n", pick(g, []string{"+=", "^=", "-="}), g.field())
	case 1:
		g.f("%s.%s = %s + r\n", g.pointer(), pick(g, []string{"x", "y", "w", "z"}), g.field())
	case 2:
		g.f("%s.sums[r&7] += %s\n%s.pix[a&15]++\n", g.pointer(), g.field(), g.pointer())
	case 3:
		g.f("%s\n", pick(g, []string{"p, q = q, p", "s = s.next", "q = q.peer", "p = s", "s = p.peer"}))
	case 4, 5, 6:
		g.f("if %s {\n", g.leafCondition())
		g.leafBlock(nest)
		if g.one(3) {
			g.f("return r ^ %s\n", g.field())
		} else if g.one(2) {
			g.f("} else {\n")
			g.leafBlock(nest)
		}
		g.f("}\n")
	case 7, 8:
		k := g.name("k")
		g.f("for %s := %s & 3; %s < 5; %s++ {\n", k, g.field(), k, k)
		if g.one(2) {
			g.f("if %s {\n%s\n}\n", g.leafCondition(), pick(g, []string{"break", "continue", "return " + k}))
		}
		g.leafBlock(nest)
		g.f("}\n")
	default:
		g.f("switch %s & 3 {\ncase 0:\n", g.field())
		g.leafBlock(nest)
		g.f("case 1:\n")
		g.leafBlock(nest)
		if g.one(2) {
			g.f("fallthrough\n")
		}
		g.f("case 2:\n")
		g.leafBlock(nest)
		g.f("}\n")
	}
}
