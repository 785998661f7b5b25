package wasihttp

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/target"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// TestEveryFunctionOfTheWorld compares what is served with the specification, in both directions.
func TestEveryFunctionOfTheWorld(t *testing.T) {
	specified, resources := map[string]bool{}, 0
	for _, f := range functions(t) {
		specified[f.Module+" "+f.Name] = true
		if strings.HasPrefix(f.Name, "[resource-drop]") {
			resources++
		}
		got, err := canonical.Find(f.Module+version, f.Name, wasip2.World(), World())
		if err != nil {
			t.Error(err)
		} else if got.Params != f.Params || got.Results != f.Results {
			t.Errorf("%s %s: got %s → %s, want %s → %s", f.Module, f.Name, got.Params, got.Results, f.Params, f.Results)
		}
	}
	if len(specified) != 63 || resources != 11 {
		t.Errorf("%d functions, %d resources", len(specified), resources)
	}
	for iface, list := range World().Interfaces {
		for _, f := range list {
			if !specified[iface+" "+f.Name] {
				t.Errorf("%s %s is served, and in no specification", iface, f.Name)
			}
		}
	}
	if _, err := canonical.Find("wasi:http/types@0.3.0", "[constructor]fields", World()); !errors.Is(err, errdefs.ErrNotFound) {
		t.Error(err)
	}
}

// TestFieldsOfGuests by their functions.
func TestFieldsOfGuests(t *testing.T) {
	g := newGuest(t)
	f := g.fields("Accept", "a", "x", "1", "accept", "b")
	same(t, "entries", g.entries(f), []string{"accept: a", "accept: b", "x: 1"})
	get := func(name string) (values []string) {
		at, n := g.put(name)
		g.do(types+"[method]fields.get", f, at, n, out)
		for i := range g.u32(out + 4) {
			values = append(values, g.text(g.u32(out)+8*i))
		}
		if has := g.do(types+"[method]fields.has", f, at, n) == 1; has != (len(values) > 0) {
			t.Errorf("has %q: %v", name, has)
		}
		return values
	}
	same(t, "get", get("ACCEPT"), []string{"a", "b"})
	same(t, "get nothing", get("none"), nil)
	same(t, "get no name", get("no name"), nil)
	copied := g.do(types+"[method]fields.clone", f)

	change := func(function, name string, values ...string) string {
		at, n := g.put(name)
		params := []uint64{f, at, n}
		switch function {
		case "set":
			list, count := g.list(1, values...)
			params = append(params, list, count)
		case "append":
			v, size := g.put(values[0])
			params = append(params, v, size)
		}
		if g.do(types+"[method]fields."+function, append(params, out)...); g.u8(out) == 0 {
			return "ok"
		}
		return fields.Error(g.u8(out + 1)).Error()
	}
	for _, c := range [][]string{
		{"ok", "set", "x", "2", "3"}, {"ok", "append", "Y", ""}, {"ok", "delete", "accept"}, {"ok", "delete", "nothing"},
		{"invalid syntax", "set", "x", "2", "\n"}, {"invalid syntax", "append", "", "v"}, {"forbidden", "append", "Host", "v"},
		{"forbidden", "delete", "upgrade"}, {"invalid syntax", "delete", "a b"},
	} {
		if got := change(c[1], c[2], c[3:]...); got != c[0] {
			t.Errorf("%q: %s", c, got)
		}
	}
	same(t, "changed", g.entries(f), []string{"x: 2", "x: 3", "y: "})
	same(t, "the copy", g.entries(copied), []string{"accept: a", "accept: b", "x: 1"})

	for pair, want := range map[string]fields.Error{"a\n": fields.InvalidSyntax, "connection": fields.Forbidden} {
		at, n := g.list(2, pair, "v")
		if g.do(types+"[static]fields.from-list", at, n, out); g.u8(out) != 1 || fields.Error(g.u8(out+4)) != want {
			t.Errorf("%q: %d, %v", pair, g.u8(out), fields.Error(g.u8(out+4)))
		}
	}
	response := g.do(types+"[constructor]outgoing-response", f)
	g.trap(t, "wrong type", types+"[method]fields.entries", f, out) // the number is the response's now
	f = g.do(types+"[method]outgoing-response.headers", response)
	same(t, "of the response", g.entries(f), []string{"x: 2", "x: 3", "y: "})
	if got := change("append", "z", "1"); got != "immutable" {
		t.Errorf("fields of a response: %s", got)
	}
	g.do(types+"[resource-drop]outgoing-response", response)
	g.do(types+"[resource-drop]fields", f) // no child, as in wasmtime

	f = copied
	at, n := g.put("\xff")
	g.trap(t, "not UTF-8", types+"[method]fields.has", f, at, n)
	g.trap(t, "wrong type", types+"[method]incoming-request.headers", f)
	big, size := g.put(strings.Repeat("v", 60<<10))
	name, length := g.put("n")
	for range 2 {
		g.do(types+"[method]fields.append", f, name, length, big, size, out)
	}
	g.trap(t, "fields of more than", types+"[method]fields.append", f, name, length, big, size, out)
	g.trap(t, "fields of more than", types+"[static]fields.from-list", lists, fields.MaxEntries+1, out)
}

// TestRequestsOfGuests are made and refused by their parts.
func TestRequestsOfGuests(t *testing.T) {
	g := newGuest(t)
	r := g.do(types+"[constructor]outgoing-request", g.fields("a", "b"))
	const method = types + "[method]outgoing-request."
	for _, part := range []string{"path-with-query", "authority"} {
		if got := g.option(method+part, r); got != "-" {
			t.Errorf("%s: %q", part, got)
		}
	}
	text := func(part string, s string) bool {
		at, n := g.put(s)
		ok := g.do(method+"set-"+part, r, 1, at, n) == 0
		if got := g.option(method+part, r); ok && got != s {
			t.Errorf("%s: %q, want %q", part, got, s)
		}
		return ok
	}
	for _, c := range []struct {
		part  string
		valid bool
		all   []string
	}{
		{"path-with-query", true, []string{"/", "", "/a?b=c&d", "/ü%20", "?q"}},
		{"path-with-query", false, []string{"/a b", "/a#b", "a", "*", "/\n", "/" + strings.Repeat("a", target.Max)}},
		{"authority", true, []string{"host", "host:80", "1.2.3.4:1", "[::1]", "[::1]:8080", "a-b.c_d"}},
		{"authority", false, []string{"", "host:", "host:x", "host:99999", "a b", "a/b", "user@host", "[::1", "[]", "ho\nst", ":80", "a:1:2"}},
	} {
		for _, s := range c.all {
			if text(c.part, s) != c.valid {
				t.Errorf("%s: %.30q", c.part, s)
			}
		}
	}
	if g.do(method+"set-authority", r, 0, 0, 0); g.option(method+"authority", r) != "-" {
		t.Error("the authority is still there")
	}
	variant := func(part string, at uint32) string {
		g.do(method+part, r, out)
		if part == "scheme" && g.u8(out) == 0 {
			return "-"
		}
		if last := map[string]uint8{"scheme": 2, "method": 9}[part]; g.u8(at) == last {
			return g.text(at + 4)
		}
		return map[string][]string{"scheme": schemes, "method": methods}[part][g.u8(at)]
	}
	if got := variant("scheme", out+4); got != "-" {
		t.Errorf("scheme: %q", got)
	}
	for i, want := range append(slices.Clone(schemes), "ws+x") {
		at, n := g.put(want)
		if g.do(method+"set-scheme", r, 1, uint64(i), at, n) != 0 || variant("scheme", out+4) != want {
			t.Errorf("scheme %q", want)
		}
	}
	for i, want := range append(slices.Clone(methods), "BREW") {
		at, n := g.put(want)
		if g.do(method+"set-method", r, uint64(i), at, n) != 0 || variant("method", out) != want {
			t.Errorf("method %q", want)
		}
	}
	for _, bad := range []string{"", "1x", "a b"} {
		at, n := g.put(bad)
		if bad != "1x" && g.do(method+"set-method", r, 9, at, n) != 1 || g.do(method+"set-scheme", r, 1, 2, at, n) != 1 {
			t.Errorf("%q is accepted", bad)
		}
	}
	g.trap(t, "unexpected discriminant 10", method+"set-method", r, 10, 0, 0)
	g.trap(t, "unexpected discriminant 3", method+"set-scheme", r, 1, 3, 0, 0)
	if g.own(method+"body", r) == 0 || g.own(method+"body", r) != 0 {
		t.Error("the body is given out once")
	}
	options := g.do(types + "[constructor]request-options")
	for _, name := range []string{"connect", "first-byte", "between-bytes"} {
		get, set := types+"[method]request-options."+name+"-timeout", types+"[method]request-options.set-"+name+"-timeout"
		if g.do(get, options, out); g.u8(out) != 0 {
			t.Errorf("%s is set", name)
		}
		g.do(set, options, 1, 1<<40)
		if g.do(get, options, out); g.u8(out) != 1 || g.u32(out+12) != 1<<8 {
			t.Errorf("%s: %d", name, g.u32(out+12))
		}
	}
	for status, want := range map[uint64]uint64{99: 1, 100: 0, 404: 0, 999: 0, 1000: 1} {
		response := g.do(types+"[constructor]outgoing-response", g.fields())
		if got := g.do(types+"[method]outgoing-response.set-status-code", response, status); got != want {
			t.Errorf("status %d: %d", status, got)
		}
	}
}

// same compares two lists.
func same[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
