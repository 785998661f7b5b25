package rustname

import (
	"strconv"
	"strings"
)

// basic are the types that are one letter.
func basic(c byte) string {
	return map[byte]string{
		'a': "i8", 'b': "bool", 'c': "char", 'd': "f64", 'e': "str", 'f': "f32", 'h': "u8", 'i': "isize", 'j': "usize", 'l': "i32", 'm': "u32",
		'n': "i128", 'o': "u128", 'p': "_", 's': "i16", 't': "u16", 'u': "()", 'v': "...", 'x': "i64", 'y': "u64", 'z': "!",
	}[c]
}

func (p *parser) typ() {
	if !p.enter() {
		return
	}
	defer p.leave()
	c := p.next()
	if name := basic(c); name != "" {
		p.print(name)
		return
	}
	switch c {
	case 'R', 'Q':
		p.print("&")
		if p.eat('L') {
			if n := p.base62(); n != 0 {
				p.lifetime(n)
				p.print(" ")
			}
		}
		if c == 'Q' {
			p.print("mut ")
		}
		p.typ()
	case 'P', 'O':
		p.print(map[byte]string{'P': "*const ", 'O': "*mut "}[c])
		p.typ()
	case 'A', 'S':
		p.print("[")
		p.typ()
		if c == 'A' {
			p.print("; ")
			p.constant()
		}
		p.print("]")
	case 'T':
		p.print("(")
		if p.list(p.typ) == 1 {
			p.print(",")
		}
		p.print(")")
	case 'F':
		p.binder(p.function)
	case 'D':
		p.dyn()
	case 'B':
		p.back(p.typ)
	default:
		p.at--
		p.path(false)
	}
}

func (p *parser) function() {
	if p.eat('U') {
		p.print("unsafe ")
	}
	if p.eat('K') {
		abi := "C"
		if !p.eat('C') {
			abi = strings.ReplaceAll(p.identifier(), "_", "-")
		}
		p.print(`extern "` + abi + `" `)
	}
	p.print("fn(")
	p.list(p.typ)
	p.print(")")
	if p.eat('u') {
		return // ()
	}
	p.print(" -> ")
	p.typ()
}

// dyn reads a trait object: its traits, then its lifetime.
func (p *parser) dyn() {
	p.print("dyn ")
	p.binder(func() {
		for n := 0; !p.bad && !p.eat('E'); n++ {
			if n > 0 {
				p.print(" + ")
			}
			p.trait()
		}
	})
	if !p.eat('L') {
		p.bad = true
		return
	}
	if n := p.base62(); n != 0 {
		p.print(" + ")
		p.lifetime(n)
	}
}

// trait reads a trait with its associated types, which stand among its arguments.
func (p *parser) trait() {
	open := p.openPath()
	for p.eat('p') {
		if open {
			p.print(", ")
		} else {
			p.print("<")
			open = true
		}
		p.print(p.identifier())
		p.print(" = ")
		p.typ()
	}
	if open {
		p.print(">")
	}
}

// openPath reads a path and leaves its list of arguments open, if it has one.
func (p *parser) openPath() (open bool) {
	if !p.enter() {
		return false
	}
	defer p.leave()
	switch {
	case p.eat('B'):
		p.back(func() { open = p.openPath() })
		return open
	case p.eat('I'):
		p.path(false)
		p.print("<")
		p.list(p.argument)
		return true
	}
	p.path(false)
	return false
}

// constant reads the value of an argument: an integer, a truth value or a letter. Values that are
// put together are rare, and not shown.
func (p *parser) constant() {
	c := p.next()
	switch {
	case c == 'p':
		p.print("_")
		return
	case c == 'B':
		p.back(p.constant)
		return
	case !strings.ContainsRune("abchijlmnostxy", rune(c)):
		p.bad = true
		return
	}
	sign := ""
	if p.eat('n') {
		sign = "-"
	}
	from := p.at
	for p.next() != '_' && !p.bad {
	}
	if p.bad {
		return
	}
	p.print(sign + constantText(c, p.in[from:p.at-1]))
}

// constantText shows a value that is written in hexadecimal digits.
func constantText(kind byte, digits string) string {
	n, err := strconv.ParseUint("0"+digits, 16, 64)
	switch {
	case err != nil:
		return "0x" + digits
	case kind == 'b':
		return strconv.FormatBool(n != 0)
	case kind == 'c':
		return strconv.QuoteRune(rune(n & 0x1fffff))
	}
	return strconv.FormatUint(n, 10)
}
