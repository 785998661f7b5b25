package inspect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// origin adds what the custom sections say of the toolchain, or what names let guess. The core
// modules of a component have a section of each kind each.
func (r *Report) origin(sections []format.Section) {
	var names format.Names
	for _, s := range sections {
		if s.ID != format.SectionCustom {
			continue
		}
		switch name, content := s.Custom(); name {
		case "producers":
			r.addProducers(format.Producers(content))
		case "target_features":
			for _, f := range features(content) {
				if len(r.Features) < maxOrigin && !slices.Contains(r.Features, f) {
					r.Features = append(r.Features, f)
				}
			}
		case "go.buildid", "go:buildid":
			r.Toolchain = append(r.Toolchain, "Go (build id "+buildID(content)+")")
		case "name":
			names = format.ReadNames(s.Body)
		}
	}
	for _, field := range []string{"language", "processed-by", "sdk"} {
		for _, value := range r.Producers[field] {
			if !slices.Contains(r.Toolchain, value) {
				r.Toolchain = append(r.Toolchain, value)
			}
		}
	}
	if len(r.Toolchain) == 0 {
		if guess := guess(names, r.Exports); guess != "" {
			r.Toolchain = append(r.Toolchain, guess+" (by its names)")
		}
	}
}

// maxOrigin bounds how many names of a kind are kept: each is compared with all.
const maxOrigin = 100

// addProducers adds what a section names and another has not named.
func (r *Report) addProducers(more map[string][]string) {
	if r.Producers == nil {
		r.Producers = map[string][]string{}
	}
	for field, values := range more {
		for _, v := range values {
			if len(r.Producers[field]) < maxOrigin && !slices.Contains(r.Producers[field], v) {
				r.Producers[field] = append(r.Producers[field], v)
			}
		}
	}
}

// features reads the target_features section: "+simd128" and the like.
func features(content []byte) []string {
	var all []string
	r := format.Reader{Rest: content}
	for range r.Number() {
		prefix, name := r.Octet(), r.Bytes()
		if r.Bad {
			break
		}
		all = append(all, fmt.Sprintf("%c%s", prefix, name))
	}
	return all
}

// buildID reads Go's build id, of which the last part is the content's.
func buildID(content []byte) string {
	_, quoted, found := strings.Cut(string(content), `"`)
	if !found {
		quoted = string(content)
	}
	id, _, _ := strings.Cut(quoted, `"`)
	return id[strings.LastIndexByte(id, '/')+1:]
}

// guess is the toolchain by what it usually calls things.
func guess(names format.Names, exports []Export) string {
	for _, sign := range []struct{ name, toolchain string }{
		{"tinygo_", "TinyGo"}, {"runtime.goexit", "Go"}, {"rust_", "Rust"}, {"__rust", "Rust"}, {"~lib/", "AssemblyScript"},
		{"swift_", "Swift"}, {"__wasm_call_ctors", "LLVM"}, {"__main_void", "LLVM with wasi-libc"},
	} {
		if names.Any(func(name string) bool { return strings.HasPrefix(name, sign.name) }) {
			return sign.toolchain
		}
	}
	for _, sign := range []struct{ name, toolchain string }{
		{"__rtti_base", "AssemblyScript"}, {"asyncify_start_unwind", "Binaryen"}, {"__heap_base", "LLVM"}, {"__data_end", "LLVM"},
	} {
		if slices.ContainsFunc(exports, func(e Export) bool { return e.Name == sign.name }) {
			return sign.toolchain
		}
	}
	return ""
}
