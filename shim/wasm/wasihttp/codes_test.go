package wasihttp

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/lull"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// layout is a type of the component model: what this test knows of the canonical ABI, on its own.
type layout interface {
	measure() (size, align uint32)
	flat() string // i and I
	load(b []byte) string
	lower(g *guest, value string) []uint64
}

// unsigned is u8 to u64, of so many bytes.
type unsigned uint32

func (u unsigned) measure() (uint32, uint32) { return uint32(u), uint32(u) }
func (u unsigned) flat() string {
	if u == 8 {
		return "I"
	}
	return "i"
}
func (u unsigned) load(b []byte) string {
	all := make([]byte, 8)
	copy(all, b[:u])
	return fmt.Sprint(binary.LittleEndian.Uint64(all))
}
func (u unsigned) lower(_ *guest, value string) []uint64 {
	var n uint64
	fmt.Sscan(value, &n)
	return []uint64{n}
}

// text is string. Its value is loaded by memory, which a list of bytes here cannot.
type text struct{ g *guest }

func (text) measure() (uint32, uint32) { return 8, 4 }
func (text) flat() string              { return "ii" }
func (s text) load(b []byte) string {
	v, _ := s.g.mem.Read(binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]))
	return string(v)
}
func (text) lower(g *guest, value string) []uint64 {
	at, n := g.put(value)
	return []uint64{at, n}
}

// record has fields, written with a "+" between them.
type record []layout

func (r record) measure() (size, align uint32) {
	for _, f := range r {
		s, a := f.measure()
		size, align = (size+a-1)/a*a+s, max(align, a)
	}
	return (size + align - 1) / align * align, align
}
func (r record) flat() (all string) {
	for _, f := range r {
		all += f.flat()
	}
	return all
}
func (r record) load(b []byte) string {
	var parts []string
	at := uint32(0)
	for _, f := range r {
		s, a := f.measure()
		at = (at + a - 1) / a * a
		parts, at = append(parts, f.load(b[at:])), at+s
	}
	return strings.Join(parts, "+")
}
func (r record) lower(g *guest, value string) (all []uint64) {
	for i, part := range strings.Split(value, "+") {
		all = append(all, r[i].lower(g, part)...)
	}
	return all
}

// variant has cases, nil for those without a payload; its value is "case:payload".
type variant []layout

func (v variant) payload() (size, align uint32) {
	align = 1
	for _, c := range v {
		if c != nil {
			s, a := c.measure()
			size, align = max(size, s), max(align, a)
		}
	}
	return size, align
}
func (v variant) measure() (uint32, uint32) {
	size, align := v.payload()
	return (align + size + align - 1) / align * align, align
}
func (v variant) flat() string {
	var joined []byte
	for _, c := range v {
		if c == nil {
			continue
		}
		for i, f := range []byte(c.flat()) {
			if i == len(joined) {
				joined = append(joined, f)
			} else if joined[i] != f {
				joined[i] = 'I'
			}
		}
	}
	return "i" + string(joined)
}
func (v variant) load(b []byte) string {
	_, align := v.payload()
	if c := v[b[0]]; c != nil {
		return fmt.Sprintf("%d:%s", b[0], c.load(b[align:]))
	}
	return fmt.Sprintf("%d:", b[0])
}
func (v variant) lower(g *guest, value string) []uint64 {
	head, rest, _ := strings.Cut(value, ":")
	var i int
	fmt.Sscan(head, &i)
	all := []uint64{uint64(i)}
	if v[i] != nil {
		all = append(all, v[i].lower(g, rest)...)
	}
	return append(all, make([]uint64, len(v.flat())-len(all))...)
}

// TestErrorCodes of all cases and payloads pass in both directions: given to response-outparam.set,
// and told by http-error-code, as the type that the specification has says.
func TestErrorCodes(t *testing.T) {
	g := newGuest(t)
	option := func(of layout) layout { return variant{nil, of} }
	s := text{g}
	field := record{option(s), option(unsigned(4))}
	payloads := map[payload]layout{
		none: nil, textNumber: record{option(s), option(unsigned(2))}, numberText: record{option(unsigned(1)), option(s)},
		size64: option(unsigned(8)), size32: option(unsigned(4)), fieldSize: field, maybeFieldSize: option(field), textOnly: option(s),
	}
	var errorCode variant
	for _, c := range cases {
		errorCode = append(errorCode, payloads[c.payload])
	}
	if size, align := errorCode.measure(); size != codeSize || align != codeAlign || errorCode.flat() != "iiIiiii" {
		t.Fatalf("error-code: size %d, alignment %d, flat %s", size, align, errorCode.flat())
	}
	if len(cases) != 39 {
		t.Errorf("%d cases", len(cases))
	}
	values := map[payload][]string{
		none: {""}, textNumber: {"0:+0:", "1:text+1:65535", "1:+0:", "0:+1:7"}, numberText: {"0:+0:", "1:255+1:text", "1:1+0:", "0:+1:t"},
		size64: {"0:", "1:18446744073709551615"}, size32: {"0:", "1:4294967295"}, textOnly: {"0:", "1:text"},
		fieldSize:      {"0:+0:", "1:name+1:4294967295", "1:name+0:", "0:+1:9"},
		maybeFieldSize: {"0:", "1:1:name+1:4294967295", "1:1:name+0:", "1:0:+1:9"},
	}
	for i, c := range cases {
		for _, value := range values[c.payload] {
			value = fmt.Sprintf("%d:%s", i, value)
			e := newExchange(new(lull.Timer))
			to := uint64(g.instance.ABI().Add(&responseOutparam{e}, 0))
			params := append([]uint64{to, 1}, errorCode.lower(g, value)...)
			g.do(types+"[static]response-outparam.set", params...)
			<-e.answered
			if got := e.err.(ErrorCode); got.Case != Case(i) {
				t.Errorf("%s: got %v", value, got)
			}
			failed := uint64(g.instance.ABI().Add(&wasip2.IOError{Cause: e.err}, 0))
			g.do(types+"http-error-code", failed, out)
			b, _ := g.mem.Read(out, 8+codeSize)
			if got := (variant{nil, errorCode}).load(b); got != "1:"+value {
				t.Errorf("%s %s: got %s", c.name, value, got)
			}
			g.do("io/error#[resource-drop]error", failed)
		}
	}
	other := uint64(g.instance.ABI().Add(&wasip2.IOError{Cause: errOnce}, 0))
	if g.do(types+"http-error-code", other, out); g.u8(out) != 0 {
		t.Error("an error of something else has an error-code")
	}
	to := uint64(g.instance.ABI().Add(&responseOutparam{newExchange(new(lull.Timer))}, 0))
	g.trap(t, "unexpected discriminant 39", types+"[static]response-outparam.set", to, 1, 39, 0, 0, 0, 0, 0, 0)
}
