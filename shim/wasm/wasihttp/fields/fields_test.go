package fields

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// listing is what fields hold, as "name: value" in order.
func (f *Fields) listing() (all []string) {
	for _, e := range f.list {
		for _, v := range e.values {
			all = append(all, e.name+": "+v)
		}
	}
	return all
}

func TestFieldsKeepOrderAndFoldNames(t *testing.T) {
	f := &Fields{}
	for _, e := range [][2]string{{"X-B", "1"}, {"a", "2"}, {"x-b", "3"}, {"C", ""}} {
		if err := f.Add(e[0], e[1]); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "entries", f.listing(), []string{"x-b: 1", "x-b: 3", "a: 2", "c: "})
	same(t, "get", f.Get("X-b"), []string{"1", "3"})
	c := f.Clone()
	if err := f.Set("x-B", []string{"4"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete("A"); err != nil {
		t.Fatal(err)
	}
	if err := f.Set("c", nil); err != nil {
		t.Fatal(err)
	}
	same(t, "after changes", f.listing(), []string{"x-b: 4"})
	same(t, "the clone", c.listing(), []string{"x-b: 1", "x-b: 3", "a: 2", "c: "})
	if want := cost("x-b", []string{"4"}); f.size != want {
		t.Errorf("size %d, want %d", f.size, want)
	}
}

func TestFieldsRefuse(t *testing.T) {
	frozen := (&Fields{}).Freeze()
	for _, c := range []struct {
		f           *Fields
		name, value string
		want        error
	}{
		{&Fields{}, "ok", "tab\tand ünicode\xff", nil},
		{&Fields{}, "", "x", InvalidSyntax},
		{&Fields{}, "sp ace", "x", InvalidSyntax},
		{&Fields{}, "ü", "x", InvalidSyntax},
		{&Fields{}, strings.Repeat("n", MaxName+1), "x", InvalidSyntax},
		{&Fields{}, "ok", "new\nline", InvalidSyntax},
		{&Fields{}, "ok", "nul\x00", InvalidSyntax},
		{&Fields{}, "ok", "del\x7f", InvalidSyntax},
		{&Fields{}, "Transfer-Encoding", "chunked", Forbidden},
		{&Fields{}, "HOST", "x", Forbidden},
		{&Fields{}, "connection", "close", Forbidden},
		{&Fields{}, "Content-Length", "10", nil},
		{&Fields{}, "Content-Length", "ten", InvalidSyntax},
		{frozen, "ok", "x", Immutable},
		{frozen, "host", "x", Forbidden},
		{frozen, "b a d", "x", InvalidSyntax},
	} {
		if err := c.f.Add(c.name, c.value); err != c.want {
			t.Errorf("add %.20q: %q: %v, want %v", c.name, c.value, err, c.want)
		}
		if err := c.f.Set(c.name, []string{"1", c.value}); err != c.want {
			t.Errorf("set %.20q: %q: %v, want %v", c.name, c.value, err, c.want)
		}
	}
	if err := frozen.Delete("ok"); err != Immutable {
		t.Errorf("delete: %v", err)
	}
	if err := (&Fields{}).Delete("upgrade"); err != Forbidden {
		t.Errorf("delete: %v", err)
	}
}

// TestFieldsAreBounded in all, however they are added.
func TestFieldsAreBounded(t *testing.T) {
	for name, add := range map[string]func(f *Fields, i int) error{
		"same name":   func(f *Fields, _ int) error { return f.Add("a", "") },
		"other names": func(f *Fields, i int) error { return f.Add(fmt.Sprint("a", i), "") },
		"large value": func(f *Fields, _ int) error { return f.Add("a", strings.Repeat("v", 10000)) },
		"larger set": func(f *Fields, i int) error {
			return f.Set("a", slices.Repeat([]string{"value"}, 100*i))
		},
	} {
		f, n := &Fields{}, 0
		for ; add(f, n) == nil; n++ {
			if f.size > Max || n > Max {
				t.Fatalf("%s: %d bytes in %d fields", name, f.size, n)
			}
		}
		if err := add(f, n); err != ErrFull {
			t.Errorf("%s: %v", name, err)
		}
		size := 0
		for _, e := range f.list {
			size += cost(e.name, e.values)
		}
		if f.size != size {
			t.Errorf("%s: size %d, counted %d", name, f.size, size)
		}
	}
}

func TestFieldsOfHeaders(t *testing.T) {
	f := Of(http.Header{"X-B": {"2", "1"}, "Accept": {"*/*"}, "Connection": {"close"}, "Te": {"trailers"}, "None": nil})
	same(t, "entries", f.listing(), []string{"accept: */*", "te: trailers", "x-b: 2", "x-b: 1"})
	if err := f.Add("a", "b"); err != Immutable {
		t.Error(err)
	}
	same(t, "header", f.Header()["X-B"], []string{"2", "1"})
}

func TestContentLength(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "12": 12, "9223372036854775807": 9223372036854775807, "+5": -2, "-5": -2, "": -2, "5 ": -2,
		"0x5": -2, "9999999999999999999": -2} {
		got, err := (&Fields{list: []field{{"content-length", []string{text}}}}).ContentLength()
		if err != nil {
			got = -2
		}
		if got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if n, err := (&Fields{list: []field{{"content-length", []string{"5", "20"}}}}).ContentLength(); err == nil {
		t.Errorf("two lengths: %d", n)
	}
	if n, err := (&Fields{}).ContentLength(); n != -1 || err != nil {
		t.Error(n, err)
	}
}

// FuzzFields compares what is accepted with what net/http writes and reads.
func FuzzFields(f *testing.F) {
	for _, s := range [][2]string{{"a", "b"}, {"Content-Type", "text/plain"}, {"x-ü", "1"}, {"host", "x"}, {"a", "\r\nb: c"}, {"a", " spaced "}} {
		f.Add(s[0], s[1], s[1])
	}
	f.Fuzz(func(t *testing.T, name, first, second string) {
		all := &Fields{}
		if all.Add(name, first) != nil || all.Add(name, second) != nil {
			return
		}
		if isForbidden(strings.ToLower(name)) {
			t.Fatalf("%q was accepted", name)
		}
		var text strings.Builder
		if err := all.Header().Write(&text); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(text.String(), "\r\n"), "\r\n")
		if len(lines) != 2 {
			t.Fatalf("%q", text.String())
		}
		for i, value := range []string{first, second} {
			if want := http.CanonicalHeaderKey(name) + ": " + strings.Trim(value, " \t"); lines[i] != want {
				t.Errorf("got %q, want %q", lines[i], want)
			}
		}
		again := Of(all.Header())
		same(t, "read again", again.listing(), all.listing())
		if again.size != all.size {
			t.Errorf("size %d, then %d", all.size, again.size)
		}
		if err := all.Delete(name); err != nil || all.size != 0 || len(all.list) != 0 {
			t.Errorf("delete: %v, size %d", err, all.size)
		}
	})
}

// same compares two lists.
func same[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
