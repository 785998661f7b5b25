package runtimeclass

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
)

func TestNewTable(t *testing.T) {
	for _, tt := range []struct {
		name     string
		handlers []Handler
		want     string // part of the error, "" for none
	}{
		{"two", []Handler{{Name: "runc", Type: OCI, Default: true}, {Name: "wasm", Type: WASM}}, ""},
		{"longest name", []Handler{{Name: strings.Repeat("a", 63), Type: OCI, Default: true}}, ""},
		{"none", nil, "no handler is configured"},
		{"upper case", []Handler{{Name: "Foo", Type: OCI, Default: true}}, `handler name "Foo"`},
		{"underscore", []Handler{{Name: "foo_1", Type: OCI, Default: true}}, `handler name "foo_1"`},
		{"dot", []Handler{{Name: "a.b", Type: OCI, Default: true}}, `handler name "a.b"`},
		{"too long", []Handler{{Name: strings.Repeat("a", 64), Type: OCI, Default: true}}, "handler name"},
		{"empty name", []Handler{{Type: OCI, Default: true}}, `handler name ""`},
		{"twice", []Handler{{Name: "a", Type: OCI, Default: true}, {Name: "a", Type: WASM}}, `"a" is configured twice`},
		{"unknown type", []Handler{{Name: "a", Type: "vm", Default: true}}, `type "vm" is not known`},
		{"no type", []Handler{{Name: "a", Default: true}}, `type "" is not known`},
		{"scopes", []Handler{{Name: "a", Type: OCI, Default: true, ShimScope: ScopePod}, {Name: "b", Type: WASM, ShimScope: ScopeNode}}, ""},
		{"unknown scope", []Handler{{Name: "a", Type: OCI, Default: true, ShimScope: "cluster"}}, `handler "a": shim scope "cluster" is not known (known: "pod", "node")`},
		{"no default", []Handler{{Name: "b", Type: OCI}, {Name: "a", Type: OCI}}, "no handler is the default (configured: a, b)"},
		{"two defaults", []Handler{{Name: "a", Type: OCI, Default: true}, {Name: "b", Type: OCI, Default: true}}, "more than one handler is the default: a, b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewTable(tt.handlers)
			checkError(t, err, tt.want)
		})
	}
}

func TestLookup(t *testing.T) {
	table, err := NewTable([]Handler{{Name: "wasm", Type: WASM}, {Name: "runc", Type: OCI, Default: true}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": "runc", "runc": "runc", "wasm": "wasm"} {
		if h, err := table.Lookup(name); err != nil || h.Name != want {
			t.Errorf("Lookup(%q) = %q, %v", name, h.Name, err)
		}
	}
	_, err = table.Lookup("kata")
	checkError(t, err, `runtime handler "kata" is not configured (configured: runc, wasm)`)
	all := table.All()
	if len(all) != 2 || all[0].Name != "runc" || all[1].Name != "wasm" {
		t.Fatalf("All() = %+v", all)
	}
	all[1].Platforms[0].OS = "changed"
	if h, _ := table.Lookup("wasm"); h.Platforms[0].OS != "wasip1" {
		t.Error("the table was changed through All")
	}
	if table.Default().Name != "runc" {
		t.Errorf("Default() = %q", table.Default().Name)
	}
}

func TestDefaultPlatforms(t *testing.T) {
	host := runtime.GOOS + "/" + runtime.GOARCH
	for typ, want := range map[Type][]string{
		OCI:  {host},
		WASM: {"wasip1/wasm", "wasi/wasm", "wasi/wasm32", "linux/wasm", "wasip2/wasm", host},
	} {
		got := DefaultPlatforms(typ)
		if len(got) != len(want) {
			t.Fatalf("%s: %v", typ, got)
		}
		for i, p := range got {
			if !strings.HasPrefix(platforms.Format(p), want[i]) {
				t.Errorf("%s[%d] = %s, want %s", typ, i, platforms.Format(p), want[i])
			}
		}
	}
}

func TestParsePlatforms(t *testing.T) {
	for _, tt := range []struct {
		in   []string
		want []string
		err  string
	}{
		{nil, nil, ""},
		{[]string{"wasip1/wasm", "wasi/wasm", "wasi/wasm32"}, []string{"wasip1/wasm", "wasi/wasm", "wasi/wasm32"}, ""},
		{[]string{"wasip2/wasm", "wasip1/wasm"}, []string{"wasip2/wasm", "wasip1/wasm"}, ""},
		{[]string{"linux/x86_64"}, []string{"linux/amd64"}, ""},
		{[]string{"linux/aarch64"}, []string{"linux/arm64"}, ""},
		{[]string{"linux/arm"}, []string{"linux/arm/v7"}, ""},
		{[]string{"linux/arm/v6", "linux/riscv64"}, []string{"linux/arm/v6", "linux/riscv64"}, ""},
		{[]string{"linux/amd64/v1"}, []string{"linux/amd64"}, ""},
		{[]string{"Linux/AMD64"}, []string{"linux/amd64"}, ""},
		{[]string{"*"}, nil, `parse platform "*"`},
		{[]string{""}, nil, `parse platform ""`},
		{[]string{"a/b/c/d"}, nil, `parse platform "a/b/c/d"`},
		{[]string{"linux/ü"}, nil, "parse platform"},
		{[]string{"linux/amd64", "linux/x86_64"}, nil, `platform "linux/x86_64" is listed twice`},
	} {
		got, err := ParsePlatforms(tt.in)
		checkError(t, err, tt.err)
		var names []string
		for _, p := range got {
			names = append(names, platforms.Format(p))
		}
		if !slices.Equal(names, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.in, names, tt.want)
		}
	}
	got, err := ParsePlatforms([]string{"host"})
	if err != nil || len(got) != 1 || got[0].Architecture != runtime.GOARCH {
		t.Errorf("host: %v, %v", got, err)
	}
}

// checkError wants an error of class ErrInvalidArgument whose text has want in
// it, or none if want is "".
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want it to have %q in it", err, want)
	case want != "" && !errdefs.IsInvalidArgument(err):
		t.Errorf("error %v is not of class ErrInvalidArgument", err)
	}
}
