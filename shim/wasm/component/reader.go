package component

import (
	"fmt"
	"unicode/utf8"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// decoder is what all of a file shares. Whatever is wrong ends decoding: fail panics with an *Error,
// and catch makes it the result.
type decoder struct {
	modules, components, definitions, parts, names int // so far
	primitive                                      map[byte]*Type
	operations                                     map[Operation]operation
}

func (d *decoder) fail(at int, text string, args ...any) {
	panic(&Error{Offset: at, Text: fmt.Sprintf(text, args...)})
}

// catch turns what fail panicked with into an error.
func catch(err *error) {
	switch v := recover().(type) {
	case nil:
	case *Error:
		*err = v
	default:
		panic(v)
	}
}

// spend counts towards a bound.
func (d *decoder) spend(at int, used *int, n, limit int, what string) {
	if n > limit-*used {
		d.fail(at, "more than %d %s", limit, what)
	}
	*used += n
}

// reader reads a part of the file.
type reader struct {
	format.Reader
	d   *decoder
	end int // offset in the file of what follows
}

// at is the offset in the file of what is read next.
func (r *reader) at() int { return r.end - len(r.Rest) }

func (r *reader) octet() byte {
	at := r.at()
	b := r.Octet()
	if r.Bad {
		r.d.fail(at, "it ends too early")
	}
	return b
}

func (r *reader) number() uint32 {
	at := r.at()
	n := r.Number()
	if r.Bad {
		r.d.fail(at, "a number is not well-formed or cut off")
	}
	return n
}

// sub reads a size and returns a reader of as many bytes.
func (r *reader) sub(what string) *reader {
	at := r.at()
	data := r.Bytes()
	if r.Bad {
		r.d.fail(at, "%s is longer than what it is in", what)
	}
	return &reader{Reader: format.Reader{Rest: data}, d: r.d, end: r.at()}
}

// done fails if something is left.
func (r *reader) done(what string) {
	if len(r.Rest) > 0 {
		r.d.fail(r.at(), "%s has %d bytes too many", what, len(r.Rest))
	}
}

// count reads how many parts follow.
func (r *reader) count(what string) int {
	at := r.at()
	n := r.number()
	if uint64(n) > uint64(len(r.Rest)) { // each takes a byte or more
		r.d.fail(at, "%d %s in %d bytes", n, what, len(r.Rest))
	}
	r.d.spend(at, &r.d.parts, int(n), maxParts, "parts of definitions")
	return int(n)
}

// name reads a name.
func (r *reader) name() string {
	at := r.at()
	text := r.Bytes()
	switch {
	case r.Bad:
		r.d.fail(at, "a name is cut off")
	case len(text) > maxName:
		r.d.fail(at, "a name has %d bytes, more than %d", len(text), maxName)
	case !utf8.Valid(text):
		r.d.fail(at, "a name is not UTF-8")
	}
	r.d.spend(at, &r.d.names, len(text), maxNames, "bytes of names")
	return string(text)
}

// flag reads a byte that is 0 or 1.
func (r *reader) flag(what string) bool {
	at := r.at()
	b := r.octet()
	if b > 1 {
		r.d.fail(at, "%s 0x%02x is not known", what, b)
	}
	return b == 1
}

// expect reads a byte that can only be one.
func (r *reader) expect(want byte, what string) {
	at := r.at()
	if b := r.octet(); b != want {
		r.d.fail(at, "%s 0x%02x is not known", what, b)
	}
}

// scope has the index spaces of a component, or of the type of a component or instance.
type scope struct {
	outer  *scope
	depth  int
	spaces [sorts][]any
	of     *Component // nil in a type
}

func (r *reader) inner(s *scope, at int) *scope {
	n := &scope{outer: s}
	if s != nil {
		n.depth = s.depth + 1
	}
	if n.depth > maxDepth {
		r.d.fail(at, "components and types are more than %d deep in each other", maxDepth)
	}
	return n
}

// define appends to an index space.
func (r *reader) define(s *scope, at int, sort Sort, def any) {
	r.d.spend(at, &r.d.definitions, 1, maxDefinitions, "definitions")
	s.spaces[sort] = append(s.spaces[sort], def)
}

// index reads an index and returns what stands there.
func (r *reader) index(s *scope, sort Sort) any {
	at := r.at()
	return r.pick(s, sort, r.number(), at)
}

func (r *reader) pick(s *scope, sort Sort, n uint32, at int) any {
	all := s.spaces[sort]
	if uint64(n) >= uint64(len(all)) {
		r.d.fail(at, "%s %d is not defined there: there are %d", sort, n, len(all))
	}
	return all[n]
}

// at reads an index of a sort whose definitions are pointers to T.
func at[T any](r *reader, s *scope, sort Sort) *T { return r.index(s, sort).(*T) }

// sort reads a sort of the component level, those of the core level included.
func (r *reader) sort() Sort {
	at := r.at()
	b := r.octet()
	if b == 0 {
		return r.coreSort()
	}
	if s := SortFunc + Sort(b) - 1; b <= 5 {
		return s
	}
	r.d.fail(at, "sort 0x%02x is not known", b)
	return 0
}

func (r *reader) coreSort() Sort {
	at := r.at()
	b := r.octet()
	switch {
	case b <= 4:
		return SortCoreFunc + Sort(b)
	case b >= 0x10 && b <= 0x12:
		return SortCoreType + Sort(b-0x10)
	}
	r.d.fail(at, "core sort 0x%02x is not known", b)
	return 0
}
