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

// decodePunycode decodes RFC 3492 as Rust writes it: "_" stands before the digits.
func decodePunycode(s string) (string, bool) {
	var out []rune
	if i := strings.LastIndexByte(s, '_'); i >= 0 {
		out, s = []rune(s[:i]), s[i+1:]
	}
	n, i, bias := 128, 0, 72
	for first := true; s != ""; first = false {
		before, weight := i, 1
		for k := 36; ; k += 36 {
			if s == "" {
				return "", false
			}
			c, digit := s[0], 0
			s = s[1:]
			switch {
			case c >= 'a' && c <= 'z':
				digit = int(c - 'a')
			case c >= '0' && c <= '9':
				digit = int(c-'0') + 26
			default:
				return "", false
			}
			if i += digit * weight; i > 1<<30 || weight > 1<<24 {
				return "", false
			}
			t := min(max(k-bias, 1), 26)
			if digit < t {
				break
			}
			weight *= 36 - t
		}
		length := len(out) + 1
		bias = adapt(i-before, length, first)
		n += i / length
		i %= length
		if n > 0x10ffff || length > maxLength {
			return "", false
		}
		out = append(out[:i], append([]rune{rune(n)}, out[i:]...)...)
		i++
	}
	return string(out), true
}

func adapt(delta, length int, first bool) int {
	if first {
		delta /= 700
	} else {
		delta /= 2
	}
	delta += delta / length
	k := 0
	for ; delta > 455; k += 36 {
		delta /= 35
	}
	return k + 36*delta/(delta+38)
}
