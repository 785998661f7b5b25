package wasihttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// listing is what fields hold, as "name: value" in order.
func (f *fields) listing() (all []string) {
	for _, e := range f.list {
		for _, v := range e.values {
			all = append(all, e.name+": "+v)
		}
	}
	return all
}

func TestFieldsKeepOrderAndFoldNames(t *testing.T) {
	f := &fields{}
	for _, e := range [][2]string{{"X-B", "1"}, {"a", "2"}, {"x-b", "3"}, {"C", ""}} {
		if err := f.add(e[0], e[1]); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "entries", f.listing(), []string{"x-b: 1", "x-b: 3", "a: 2", "c: "})
	same(t, "get", f.get("X-b"), []string{"1", "3"})
	c := f.clone()
	if err := f.set("x-B", []string{"4"}); err != nil {
		t.Fatal(err)
	}
	if err := f.delete("A"); err != nil {
		t.Fatal(err)
	}
	if err := f.set("c", nil); err != nil {
		t.Fatal(err)
	}
	same(t, "after changes", f.listing(), []string{"x-b: 4"})
	same(t, "the clone", c.listing(), []string{"x-b: 1", "x-b: 3", "a: 2", "c: "})
	if want := cost("x-b", []string{"4"}); f.size != want {
		t.Errorf("size %d, want %d", f.size, want)
	}
}

func TestFieldsRefuse(t *testing.T) {
	frozen := (&fields{}).freeze()
	for _, c := range []struct {
		f           *fields
		name, value string
		want        error
	}{
		{&fields{}, "ok", "tab\tand ünicode\xff", nil},
		{&fields{}, "", "x", invalidSyntax},
		{&fields{}, "sp ace", "x", invalidSyntax},
		{&fields{}, "ü", "x", invalidSyntax},
		{&fields{}, strings.Repeat("n", maxName+1), "x", invalidSyntax},
		{&fields{}, "ok", "new\nline", invalidSyntax},
		{&fields{}, "ok", "nul\x00", invalidSyntax},
		{&fields{}, "ok", "del\x7f", invalidSyntax},
		{&fields{}, "Transfer-Encoding", "chunked", forbidden},
		{&fields{}, "HOST", "x", forbidden},
		{&fields{}, "connection", "close", forbidden},
		{&fields{}, "Content-Length", "10", nil},
		{&fields{}, "Content-Length", "ten", invalidSyntax},
		{frozen, "ok", "x", immutable},
		{frozen, "host", "x", forbidden},
		{frozen, "b a d", "x", invalidSyntax},
	} {
		if err := c.f.add(c.name, c.value); err != c.want {
			t.Errorf("add %.20q: %q: %v, want %v", c.name, c.value, err, c.want)
		}
		if err := c.f.set(c.name, []string{"1", c.value}); err != c.want {
			t.Errorf("set %.20q: %q: %v, want %v", c.name, c.value, err, c.want)
		}
	}
	if err := frozen.delete("ok"); err != immutable {
		t.Errorf("delete: %v", err)
	}
	if err := (&fields{}).delete("upgrade"); err != forbidden {
		t.Errorf("delete: %v", err)
	}
}

// TestFieldsAreBounded in all, however they are added.
func TestFieldsAreBounded(t *testing.T) {
	for name, add := range map[string]func(f *fields, i int) error{
		"same name":   func(f *fields, _ int) error { return f.add("a", "") },
		"other names": func(f *fields, i int) error { return f.add(fmt.Sprint("a", i), "") },
		"large value": func(f *fields, _ int) error { return f.add("a", strings.Repeat("v", 10000)) },
		"larger set": func(f *fields, i int) error {
			return f.set("a", slices.Repeat([]string{"value"}, 100*i))
		},
	} {
		f, n := &fields{}, 0
		for ; add(f, n) == nil; n++ {
			if f.size > maxFields || n > maxFields {
				t.Fatalf("%s: %d bytes in %d fields", name, f.size, n)
			}
		}
		if err := add(f, n); err != errFieldsFull {
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
	f := fieldsOf(http.Header{"X-B": {"2", "1"}, "Accept": {"*/*"}, "Connection": {"close"}, "Te": {"trailers"}, "None": nil})
	same(t, "entries", f.listing(), []string{"accept: */*", "te: trailers", "x-b: 2", "x-b: 1"})
	if err := f.add("a", "b"); err != immutable {
		t.Error(err)
	}
	same(t, "header", f.header()["X-B"], []string{"2", "1"})
}

func TestContentLength(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "12": 12, "9223372036854775807": 9223372036854775807, "+5": -2, "-5": -2, "": -2, "5 ": -2,
		"0x5": -2, "9999999999999999999": -2} {
		got, err := (&fields{list: []field{{"content-length", []string{text}}}}).contentLength()
		if err != nil {
			got = -2
		}
		if got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if n, err := (&fields{}).contentLength(); n != -1 || err != nil {
		t.Error(n, err)
	}
}

// FuzzFields compares what is accepted with what net/http writes and reads.
func FuzzFields(f *testing.F) {
	for _, s := range [][2]string{{"a", "b"}, {"Content-Type", "text/plain"}, {"x-ü", "1"}, {"host", "x"}, {"a", "\r\nb: c"}, {"a", " spaced "}} {
		f.Add(s[0], s[1], s[1])
	}
	f.Fuzz(func(t *testing.T, name, first, second string) {
		all := &fields{}
		if all.add(name, first) != nil || all.add(name, second) != nil {
			return
		}
		if isForbidden(strings.ToLower(name)) {
			t.Fatalf("%q was accepted", name)
		}
		var text strings.Builder
		if err := all.header().Write(&text); err != nil {
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
		again := fieldsOf(all.header())
		same(t, "read again", again.listing(), all.listing())
		if again.size != all.size {
			t.Errorf("size %d, then %d", all.size, again.size)
		}
		if err := all.delete(name); err != nil || all.size != 0 || len(all.list) != 0 {
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
