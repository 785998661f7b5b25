package merge

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// moduleOf makes a module of sections: an id and a body each.
func moduleOf(parts ...string) []byte {
	var all []format.Section
	for _, p := range parts {
		all = append(all, format.NewSection(p[0], []byte(p[1:])))
	}
	return format.Join(all)
}

func TestUnsupported(t *testing.T) {
	body := func(code string) []byte {
		return moduleOf("\x01\x01\x60\x00\x00", "\x02\x01\x01e\x01m\x00\x00", "\x03\x01\x00", "\x0a\x01"+string(rune(len(code)+2))+"\x00"+code+"\x0b")
	}
	for name, c := range map[string]struct {
		module []byte
		want   string
	}{
		"plain":           {body("\x01"), ""},
		"no module":       {[]byte("\x00as"), ""},
		"unknown opcode":  {body("\x27"), ""},
		"imported memory": {moduleOf("\x02\x01\x01e\x01m\x02\x00\x01"), ""},
		"shared":          {moduleOf("\x05\x01\x03\x01\x01"), "threads"},
		"atomics":         {body("\xfe\x03\x00"), "threads"},
		"memory64":        {moduleOf("\x05\x01\x04\x01"), "64-bit addresses"},
		"two memories":    {moduleOf("\x05\x02\x00\x01\x00\x01"), "several memories"},
		"tags":            {moduleOf("\x0d\x00"), "exception handling"},
		"imported tag":    {moduleOf("\x01\x01\x60\x00\x00", "\x02\x01\x01e\x01m\x04\x00\x00"), "exception handling"},
		"throw":           {body("\x08\x00"), "exception handling"},
		"structures":      {moduleOf("\x01\x01\x5f\x00"), "garbage collection"},
		"call_ref":        {body("\x14\x00"), "typed function references"},
		"relaxed":         {body("\xfd\x80\x02"), "relaxed SIMD"},
		"wide":            {body("\xfc\x13"), "wide arithmetic"},
		"table":           {moduleOf("\x04\x01\x40\x00\x70\x00\x01\xd0\x70\x0b"), "initial value"},
	} {
		if got := Unsupported(c.module); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q in it", name, got, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	memory := moduleOf("\x05\x01\x00\x01", "\x07\x01\x01m\x02\x00")
	imports := func(kind string) []byte { return moduleOf("\x02\x01\x01e\x01m" + kind) }
	bound := func(s Source) map[ImportName]Source { return map[ImportName]Source{{"e", "m"}: s} }
	body := func(code string) []byte {
		return moduleOf("\x01\x01\x60\x00\x00", "\x03\x01\x00", "\x0a\x01"+string(rune(len(code)+2))+"\x00"+code+"\x0b")
	}
	for name, c := range map[string]struct {
		of   []Instance
		want error
		text string
	}{
		"no module":          {[]Instance{{Module: []byte("\x00asm\x0d\x00\x01\x00")}}, ErrInvalid, "no core module"},
		"two memories":       {[]Instance{{Name: "a", Module: memory}, {Name: "b", Module: memory}}, ErrUnsupported, `instances "a" and "b"`},
		"threads":            {[]Instance{{Module: moduleOf("\x05\x01\x03\x01\x01")}}, ErrUnsupported, "threads"},
		"memory64":           {[]Instance{{Module: moduleOf("\x05\x01\x04\x01")}}, ErrUnsupported, "memory64"},
		"two own memories":   {[]Instance{{Module: moduleOf("\x05\x02\x00\x01\x00\x01")}}, ErrUnsupported, "multi-memory"},
		"tags":               {[]Instance{{Module: moduleOf("\x0d\x00")}}, ErrUnsupported, "exception"},
		"throw":              {[]Instance{{Module: body("\x08\x00")}}, ErrUnsupported, "exception"},
		"structs":            {[]Instance{{Module: moduleOf("\x01\x01\x5f\x00")}}, ErrUnsupported, "garbage"},
		"atomics":            {[]Instance{{Module: body("\xfe\x03\x00")}}, ErrUnsupported, "threads"},
		"relaxed":            {[]Instance{{Module: body("\xfd\x80\x02")}}, ErrUnsupported, "relaxed"},
		"foreign function":   {[]Instance{{Module: body("\x10\x01")}}, ErrInvalid, "function 1 of 1"},
		"foreign memory":     {[]Instance{{Name: "a", Module: memory}, {Module: body("\x3f\x00\x1a")}}, ErrInvalid, "needs a memory"},
		"undeclared":         {[]Instance{{Module: body("\xd2\x00\x1a")}}, ErrInvalid, "not declared"},
		"no data count":      {[]Instance{{Module: body("\xfc\x09\x00")}}, ErrInvalid, "count"},
		"data does not fit":  {[]Instance{{Module: moduleOf("\x05\x01\x00\x00", "\x0b\x01\x00\x41\x00\x0b\x01x")}}, ErrInvalid, "does not fit"},
		"items do not fit":   {[]Instance{{Module: moduleOf("\x04\x01\x70\x00\x00", "\x09\x01\x04\x41\x00\x0b\x01\xd0\x70\x0b")}}, ErrInvalid, "do not fit"},
		"order":              {[]Instance{{Module: moduleOf("\x05\x00", "\x03\x00")}}, ErrInvalid, "unexpected section 3"},
		"wrong value":        {[]Instance{{Module: moduleOf("\x06\x01\x7f\x00\x42\x00\x0b")}}, ErrInvalid, "i32"},
		"nothing bound":      {[]Instance{{Name: "a", Module: imports("\x02\x00\x01")}}, nil, `instance "a": link import "e"."m": nothing`},
		"no such export":     {[]Instance{{Name: "a", Module: memory}, {Module: imports("\x02\x00\x01"), Imports: bound(Export{0, "x"})}}, nil, `"a" has no export "x"`},
		"other kind":         {[]Instance{{Module: memory}, {Module: imports("\x03\x7f\x00"), Imports: bound(Export{0, "m"})}}, nil, "a global is needed"},
		"memory too small":   {[]Instance{{Module: memory}, {Module: imports("\x02\x00\x02"), Imports: bound(Export{0, "m"})}}, nil, "2 are needed"},
		"memory without end": {[]Instance{{Module: memory}, {Module: imports("\x02\x01\x01\x02"), Imports: bound(Export{0, "m"})}}, nil, "no maximum"},
		"later instance":     {[]Instance{{Module: imports("\x02\x00\x01"), Imports: bound(Export{0, "m"})}}, nil, "does not come earlier"},
		"memory of host":     {[]Instance{{Module: imports("\x02\x00\x01"), Imports: bound(Host{Module: "h", Name: "m"})}}, nil, "no memory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Merge(Input{Instances: c.of})
			var link *LinkError
			if err == nil || !strings.Contains(err.Error(), c.text) || c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.As(err, &link) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

// FuzzMerge merges a module that may be anything with one that is valid. What the engine takes
// merged it must take alone.
func FuzzMerge(f *testing.F) {
	for seed := range uint64(20) {
		for _, i := range generate(seed).Instances {
			f.Add(i.Module)
		}
	}
	f.Fuzz(func(t *testing.T, module []byte) {
		in := Input{Instances: []Instance{{Name: "a", Module: moduleOf("\x01\x01\x60\x00\x00", "\x03\x01\x00", "\x0a\x01\x02\x00\x0b")}, {Name: "b", Module: module, Imports: map[ImportName]Source{}}}}
		sections, err := format.Split(module)
		if err != nil {
			return
		}
		imports, _ := format.Imports(sections)
		for _, i := range imports {
			switch i.Kind {
			case format.KindFunction:
				in.Instances[1].Imports[ImportName{i.Module, i.Name}] = Host{"h", i.Name, i.FuncType}
			case format.KindGlobal:
				in.Instances[1].Imports[ImportName{i.Module, i.Name}] = Constant{1}
			}
		}
		merged, err := Merge(in)
		if err != nil {
			return
		}
		ctx := context.Background()
		r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features))
		defer r.Close(ctx)
		if _, err := r.CompileModule(ctx, merged.Module); err != nil {
			return
		}
		lean, _ := format.Strip(sections) // the content of custom sections makes no module invalid
		if _, err := r.CompileModule(ctx, format.Join(lean)); err != nil {
			t.Errorf("valid merged, and alone: %v", err)
		}
	})
}
