package rustname

import (
	"strconv"
	"strings"
)

// parser reads a name of version 0. After what is not understood, bad is set and nothing is added.
type parser struct {
	in     string // all of it after "_R", to which back references count
	at     int
	out    strings.Builder
	depth  int
	bad    bool
	silent int // what is read is not to be shown
	bound  int // lifetimes that are bound here
}

// version0 reads [version] path [instantiating crate] [suffix].
func version0(in string) (string, bool) {
	if in == "" || in[0] < 'A' || in[0] > 'Z' {
		return "", false
	}
	p := &parser{in: in}
	p.path(true)
	if !p.bad && p.at < len(p.in) && p.in[p.at] != '.' && p.in[p.at] != '$' {
		p.silent++
		p.path(false)
	}
	if p.at < len(p.in) && p.in[p.at] != '.' && p.in[p.at] != '$' {
		return "", false
	}
	return p.out.String(), !p.bad
}

func (p *parser) print(text string) {
	if p.silent == 0 && !p.bad {
		p.out.WriteString(text)
		p.bad = p.out.Len() > maxLength
	}
}

func (p *parser) next() byte {
	if p.bad || p.at >= len(p.in) {
		p.bad = true
		return 0
	}
	p.at++
	return p.in[p.at-1]
}

func (p *parser) eat(c byte) bool {
	if !p.bad && p.at < len(p.in) && p.in[p.at] == c {
		p.at++
		return true
	}
	return false
}

// enter bounds how deep a name is; the caller calls leave.
func (p *parser) enter() bool {
	p.depth++
	p.bad = p.bad || p.depth > maxDepth
	return !p.bad
}

func (p *parser) leave() { p.depth-- }

// base62 reads a number: "_" is 0, "0_" is 1. Those that tell crates apart have 64 bits, and are
// not shown.
func (p *parser) base62() int {
	n := 0
	for first := true; ; first = false {
		c := p.next()
		switch {
		case p.bad:
			return 0
		case c == '_' && first:
			return 0
		case c == '_':
			return n + 1
		case c >= '0' && c <= '9':
			n = n*62 + int(c-'0')
		case c >= 'a' && c <= 'z':
			n = n*62 + int(c-'a') + 10
		case c >= 'A' && c <= 'Z':
			n = n*62 + int(c-'A') + 36
		default:
			p.bad = true
		}
		n = min(n, 1<<24) // an int of 32 bits holds what comes next; only hidden numbers are larger
	}
}

// optional reads a number after a letter; 0 without it.
func (p *parser) optional(tag byte) int {
	if p.eat(tag) {
		return p.base62() + 1
	}
	return 0
}

// identifier reads a name; one in Punycode is decoded.
func (p *parser) identifier() string {
	puny := p.eat('u')
	n, rest, ok := decimal(p.in[min(p.at, len(p.in)):])
	if p.bad || !ok {
		p.bad = true
		return ""
	}
	rest = strings.TrimPrefix(rest, "_")
	if n > len(rest) {
		p.bad = true
		return ""
	}
	p.at = len(p.in) - len(rest) + n
	if !puny {
		return rest[:n]
	}
	text, ok := decodePunycode(rest[:n])
	p.bad = p.bad || !ok
	return text
}

// back reads what an earlier place of the name says.
func (p *parser) back(read func()) {
	start := p.at - 1
	to := p.base62()
	if p.bad || to >= start {
		p.bad = true
		return
	}
	if p.silent > 0 {
		return // it was read there
	}
	after := p.at
	p.at = to
	read()
	p.at = after
}

// path reads a path; value says that it is one of a value, whose arguments follow "::".
func (p *parser) path(value bool) {
	if !p.enter() {
		return
	}
	defer p.leave()
	switch c := p.next(); c {
	case 'C':
		p.optional('s')
		p.print(p.identifier())
	case 'M':
		p.hidden(func() { p.optional('s'); p.path(false) })
		p.print("<")
		p.typ()
		p.print(">")
	case 'X', 'Y':
		if c == 'X' {
			p.hidden(func() { p.optional('s'); p.path(false) })
		}
		p.print("<")
		p.typ()
		p.print(" as ")
		p.path(false)
		p.print(">")
	case 'N':
		p.nested(value)
	case 'I':
		p.path(value)
		if value {
			p.print("::")
		}
		p.print("<")
		p.list(p.argument)
		p.print(">")
	case 'B':
		p.back(func() { p.path(value) })
	default:
		p.bad = true
	}
}

// hidden reads what is not shown.
func (p *parser) hidden(read func()) {
	p.silent++
	read()
	p.silent--
}

// nested reads a part of a path with what it is in.
func (p *parser) nested(value bool) {
	space := p.next()
	p.path(value)
	number := p.optional('s')
	name := p.identifier()
	switch {
	case space >= 'a' && space <= 'z':
		if name != "" {
			p.print("::" + name)
		}
	case space >= 'A' && space <= 'Z':
		kind := string(space)
		switch space {
		case 'C':
			kind = "closure"
		case 'S':
			kind = "shim"
		}
		p.print("::{" + kind)
		if name != "" {
			p.print(":" + name)
		}
		p.print("#" + strconv.Itoa(number) + "}")
	default:
		p.bad = true
	}
}

// list reads up to E, with commas between; it returns how many there were.
func (p *parser) list(read func()) int {
	n := 0
	for ; !p.bad && !p.eat('E'); n++ {
		if n > 0 {
			p.print(", ")
		}
		read()
	}
	return n
}

func (p *parser) argument() {
	switch {
	case p.eat('L'):
		p.lifetime(p.base62())
	case p.eat('K'):
		p.constant()
	default:
		p.typ()
	}
}

// lifetime shows a lifetime: 0 is one that is left out.
func (p *parser) lifetime(n int) {
	switch depth := p.bound - n; {
	case n == 0:
		p.print("'_")
	case depth < 0:
		p.bad = true
	case depth < 26:
		p.print("'" + string(rune('a'+depth)))
	default:
		p.print("'_" + strconv.Itoa(depth))
	}
}

// binder reads lifetimes that read's types bind.
func (p *parser) binder(read func()) {
	n := p.optional('G')
	if n > maxDepth {
		p.bad = true
		return
	}
	if n > 0 {
		p.print("for<")
		for i := range n {
			if i > 0 {
				p.print(", ")
			}
			p.bound++
			p.lifetime(1)
		}
		p.print("> ")
	}
	read()
	p.bound -= n
}
