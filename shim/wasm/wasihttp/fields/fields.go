// Package fields are the headers and trailers of HTTP as a guest of wasi:http has them: in its
// order, with names in lower case, and bounded.
package fields

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// What a fields resource may hold: the bytes of its names and values, and for each of them what
// keeping it costs. A guest that adds more traps.
const (
	Max       = 128 << 10
	nameCost  = 32
	valueCost = 40
)

// ErrFull is a guest's whose fields are larger than Max.
var ErrFull = fmt.Errorf("fields of more than %d bytes", Max)

// MaxEntries bounds the lists that a guest hands in: more of them do not fit into Max.
const MaxEntries = Max/valueCost + 1

// MaxName bounds the name of a field, in bytes.
const MaxName = 1<<16 - 1

// Error is the variant header-error.
type Error uint8

const (
	InvalidSyntax Error = iota
	Forbidden
	Immutable
)

func (e Error) Error() string {
	return [...]string{"invalid syntax", "forbidden", "immutable"}[e]
}

// forbiddenNames are of fields that belong to one connection, which is the host's.
var forbiddenNames = []string{
	"connection", "host", "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
	"transfer-encoding", "upgrade",
}

func isForbidden(name string) bool { return slices.Contains(forbiddenNames, name) }

// field is a name, in lower case, and its values.
type field struct {
	name   string
	values []string
}

// Fields is the resource of that name. Names are in the order in which they were added, each once.
type Fields struct {
	list   []field
	size   int  // as Max counts it
	frozen bool // it cannot be changed
}

func (*Fields) Drop() {}

// Held implements canonical.Sized.
func (f *Fields) Held() int { return f.size }

// Of makes fields that cannot be changed of what has arrived. Headers of HTTP have lost their
// order, so they are sorted by name.
func Of(header http.Header) *Fields {
	f := &Fields{list: make([]field, 0, len(header)), frozen: true}
	for name, values := range header {
		if name = strings.ToLower(name); len(values) > 0 && !isForbidden(name) {
			f.list = append(f.list, field{name, values})
			f.size += cost(name, values)
		}
	}
	slices.SortFunc(f.list, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return f
}

// Size is what headers that have arrived, and the trailers that they announce, count in Max.
func Size(header, trailers http.Header) int {
	n := 0
	for name, values := range header {
		n += cost(name, values)
	}
	for name := range trailers {
		n += cost(name, []string{""})
	}
	return n
}

// OfHeaders is Of of headers that announce these trailers, which net/http has taken out of
// them. It is called before the body is read: trailers arrive in the same map.
func OfHeaders(header, trailers http.Header) *Fields {
	if len(trailers) == 0 {
		return Of(header)
	}
	all := maps.Clone(header)
	all["Trailer"] = []string{strings.Join(slices.Sorted(maps.Keys(trailers)), ", ")}
	return Of(all)
}

// cost is what a field counts in Max.
func cost(name string, values []string) int {
	n := nameCost + len(name)
	for _, v := range values {
		n += valueCost + len(v)
	}
	return n
}

// Header is for net/http.
func (f *Fields) Header() http.Header {
	h := make(http.Header, len(f.list)+2)
	for _, e := range f.list {
		h[http.CanonicalHeaderKey(e.name)] = slices.Clip(e.values)
	}
	return h
}

// Entries calls back for each entry, in order.
func (f *Fields) Entries(each func(name, value string)) {
	for _, e := range f.list {
		for _, v := range e.values {
			each(e.name, v)
		}
	}
}

// find returns the field of that name, nil for none.
func (f *Fields) find(name string) *field {
	for i := range f.list {
		if f.list[i].name == name {
			return &f.list[i]
		}
	}
	return nil
}

// Get returns the values of a name.
func (f *Fields) Get(name string) []string {
	if e := f.find(strings.ToLower(name)); e != nil {
		return e.values
	}
	return nil
}

// editable returns the name as it is kept, if the field may be changed.
func (f *Fields) editable(name string) (string, error) {
	switch lower := strings.ToLower(name); {
	case !ValidName(name):
		return "", InvalidSyntax
	case isForbidden(lower):
		return "", Forbidden
	default:
		return lower, nil
	}
}

// Set replaces the values of a name. With none it has no field afterwards.
func (f *Fields) Set(name string, values []string) error {
	name, err := f.editable(name)
	switch {
	case err != nil:
		return err
	case !allValid(name, values):
		return InvalidSyntax
	case f.frozen:
		return Immutable
	case len(values) == 0:
		f.remove(name)
		return nil
	}
	e := f.find(name)
	if e == nil {
		if err := f.grow(cost(name, values)); err != nil {
			return err
		}
		f.list = append(f.list, field{name, values})
		return nil
	}
	if err := f.grow(cost(name, values) - cost(name, e.values)); err != nil {
		return err
	}
	e.values = values
	return nil
}

// Add appends a value.
func (f *Fields) Add(name, value string) error {
	name, err := f.editable(name)
	switch {
	case err != nil:
		return err
	case !allValid(name, []string{value}):
		return InvalidSyntax
	case f.frozen:
		return Immutable
	}
	e := f.find(name)
	if e == nil {
		if err := f.grow(cost(name, []string{value})); err != nil {
			return err
		}
		f.list = append(f.list, field{name, []string{value}})
		return nil
	}
	if err := f.grow(valueCost + len(value)); err != nil {
		return err
	}
	e.values = append(e.values, value)
	return nil
}

// Delete removes a name.
func (f *Fields) Delete(name string) error {
	name, err := f.editable(name)
	switch {
	case err != nil:
		return err
	case f.frozen:
		return Immutable
	}
	f.remove(name)
	return nil
}

func (f *Fields) remove(name string) {
	if e := f.find(name); e != nil {
		f.size -= cost(name, e.values)
		f.list = slices.DeleteFunc(f.list, func(e field) bool { return e.name == name })
	}
}

// grow counts more bytes.
func (f *Fields) grow(by int) error {
	if by > 0 && f.size+by > Max {
		return ErrFull
	}
	f.size += by
	return nil
}

// Freeze makes the fields those of a request or a response, which cannot be changed.
func (f *Fields) Freeze() *Fields {
	f.frozen = true
	return f
}

// Clone is a copy that can be changed.
func (f *Fields) Clone() *Fields {
	c := &Fields{list: slices.Clone(f.list), size: f.size}
	for i := range c.list {
		c.list[i].values = slices.Clone(c.list[i].values)
	}
	return c
}

// Count is the number of entries.
func (f *Fields) Count() int {
	n := 0
	for _, e := range f.list {
		n += len(e.values)
	}
	return n
}

// ContentLength is the length that the fields announce, -1 for none. Two of them, even equal ones,
// are InvalidSyntax: who is behind a proxy may believe the other (RFC 9112, 6.3).
func (f *Fields) ContentLength() (int64, error) {
	e := f.find(contentLength)
	if e == nil {
		return -1, nil
	}
	if len(e.values) > 1 {
		return 0, InvalidSyntax
	}
	return parseLength(e.values[0])
}

const contentLength = "content-length"

// parseLength reads the value of content-length: digits, no sign.
func parseLength(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || s[0] == '+' {
		return 0, InvalidSyntax
	}
	return int64(n), nil
}

// ValidName reports whether a name is a token of RFC 9110.
func ValidName(name string) bool {
	if name == "" || len(name) > MaxName {
		return false
	}
	for i := range len(name) {
		if !isToken(name[i]) {
			return false
		}
	}
	return true
}

func isToken(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func validValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// allValid reports whether a field may have these values.
func allValid(name string, values []string) bool {
	for _, v := range values {
		if !validValue(v) {
			return false
		}
		if _, err := parseLength(v); name == contentLength && err != nil {
			return false
		}
	}
	return true
}
