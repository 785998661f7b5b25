package component

import (
	"strings"
	"testing"
)

func TestRefusals(t *testing.T) {
	empty := section(sectionType, instanceType())
	inner := build(coreModule, coreInstance)
	for name, c := range map[string]struct {
		file []byte
		want []string // what the texts contain, in order; none = it is accepted
	}{
		"command":           {whole(), nil},
		"wasi":              {whole(empty, section(sectionImport, imported("wasi:clocks/wall-clock@0.2.0", 1), imported("wasi:clocks/system-clock@0.3.1", 1))), []string{"by a type that another import has too", "by a type that"}},
		"spin":              {whole(empty, section(sectionImport, imported("spin:key-value/key-value@2.0.0", 1))), []string{`"spin:key-value/key-value@2.0.0", which is not of WASI`}},
		"proposal":          {whole(empty, section(sectionImport, imported("wasi:keyvalue/store@0.2.0-draft", 1))), []string{`"wasi:keyvalue/store@0.2.0-draft", which is not of WASI`}},
		"release candidate": {whole(empty, section(sectionImport, imported("wasi:io/streams@0.3.0-rc-2026-01-01", 1))), []string{"is of no release of WASI"}},
		"no version":        {whole(empty, section(sectionImport, imported("wasi:io/streams", 1))), []string{"is of no release of WASI"}},
		"plain name":        {whole(empty, section(sectionImport, imported("store", 1))), []string{`"store", which is not of WASI`}},
		"function":          {whole(section(sectionImport, cat(named("log"), []byte{1, 0}))), []string{`it imports a function, "log"`}},
		"module import": {whole(section(sectionCoreType, []byte{0x50, 0}), section(sectionImport, cat(named("m"), []byte{0, 0x11, 0})), section(sectionCoreInstance, []byte{0, 1, 0})),
			[]string{`it imports a core module, "m"`, "instantiates a core module that it imports"}},
		"component import": {whole(section(sectionType, []byte{0x41, 0}), section(sectionImport, cat(named("c"), []byte{4, 1})), section(sectionInstance, []byte{0, 0, 0})),
			[]string{`it imports a component, "c"`, "instantiates a component that it imports"}},
		"no world":        {build(coreModule), []string{"exports neither wasi:cli/run nor"}},
		"composed":        {whole(raw(sectionComponent, inner)), []string{"composed of several components"}},
		"composed deeper": {whole(raw(sectionComponent, build(raw(sectionComponent, inner)))), []string{"composed of several components"}},
		"twice":           {whole(coreInstance), []string{"more than once"}},
		"memories":        {whole(raw(sectionCoreModule, module(1, 0)), section(sectionCoreInstance, []byte{0, 1, 0})), []string{"it has 2 memories"}},
		"unused memory":   {whole(raw(sectionCoreModule, module(1, 0))), nil},
		"cut module":      {whole(raw(sectionCoreModule, []byte("\x00asm\x01\x00\x00\x00\x01\x7f")), section(sectionCoreInstance, []byte{0, 1, 0})), []string{"is not valid"}},
		"resource":        {whole(section(sectionType, []byte{0x3f, 0x7f, 0})), []string{"defines a resource of its own"}},
		"start":           {whole(raw(sectionStart, []byte{0, 0, 0})), []string{"a start function of the component level"}},
		"stackful":        {whole(section(sectionCanon, []byte{0, 0, 0, 1, 6, 0})), []string{"without a callback (stackful)"}},
		"callback":        {whole(section(sectionCanon, []byte{0, 0, 0, 2, 6, 7, 0, 0})), nil},
		"threads":         {whole(section(sectionCanon, []byte{0x26}, []byte{0x26}, []byte{0x28})), []string{"threads (thread.index)", "threads (thread.resume-later)"}},
		"yield":           {whole(section(sectionCanon, []byte{0x0c, 0})), nil},
		"lowers its own":  {whole(section(sectionCanon, []byte{1, 0, 0, 0})), []string{"lowers a function that it lifts itself"}},
		"gc":              {whole(section(sectionCanon, []byte{0, 0, 0, 1, 9, 0})), []string{"garbage collection"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := decode(t, c.file).Refusals()
			ok := len(got) == len(c.want)
			for i := 0; ok && i < len(got); i++ {
				ok = strings.Contains(got[i], c.want[i])
			}
			if !ok {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	var imports [][]byte
	for i := range 1000 {
		imports = append(imports, cat(named("f"+string(rune('a'+i%26))+strings.Repeat("x", i/26)), []byte{1, 0}))
	}
	got := decode(t, whole(section(sectionImport, imports...))).Refusals()
	if len(got) != maxRefusals+1 || got[maxRefusals] != "and 900 more reasons" {
		t.Errorf("%d, the last %q", len(got), got[len(got)-1])
	}
}

func TestWorlds(t *testing.T) {
	for name, want := range map[string]string{
		"wasi:cli/run@0.2.12": "wasi:cli/command@0.2.12", "wasi:cli/run@0.3.0": "wasi:cli/command@0.3.0",
		"wasi:http/incoming-handler@0.2.0": "wasi:http/proxy@0.2.0", "wasi:http/handler@0.3.0": "wasi:http/service@0.3.0",
		"wasi:http/incoming-handler@0.3.0": "", "wasi:cli/run@0.3.0-rc-1": "", "wasi:cli/run": "", "spin:http/handler@0.3.0": "", "run": "",
	} {
		c := decode(t, build(section(sectionInstance, []byte{1, 0}), section(sectionExport, exported(name, 5, 0))))
		if got := c.World(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
