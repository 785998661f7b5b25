package spec

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const fieldsDoc = "../../docs/cri-fields.md"

// documented are the fields in the first columns of the tables, by the section (a message) that
// they stand in.
func documented(t *testing.T) (fields map[string][]string, text string) {
	t.Helper()
	data, err := os.ReadFile(fieldsDoc)
	if err != nil {
		t.Fatal(err)
	}
	fields = map[string][]string{}
	word := regexp.MustCompile("`([A-Za-z_]+)`")
	section := ""
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.Trim(strings.Fields(name)[0], "`")
		}
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		for _, m := range word.FindAllStringSubmatch(cells[1], -1) {
			fields[section] = append(fields[section], m[1])
		}
	}
	return fields, string(data)
}

// The table is complete: every field of the configuration messages of this CRI stands in it, and
// nothing else.
func TestEveryFieldIsDocumented(t *testing.T) {
	have, _ := documented(t)
	seen := map[string]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		name := string(m.Name())
		if seen[name] || strings.HasPrefix(name, "Windows") {
			return
		}
		seen[name] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if !slices.Contains(have[name], string(f.Name())) {
				t.Errorf("%s: section %s lacks %s", fieldsDoc, name, f.Name())
			}
			inner := f.Message()
			if f.IsMap() {
				inner = nil
			}
			if inner != nil && !isPlain(inner) {
				walk(inner)
			}
		}
		for _, f := range have[name] {
			if m.Fields().ByName(protoreflect.Name(f)) == nil {
				t.Errorf("%s: %s has no field %s", fieldsDoc, name, f)
			}
		}
	}
	for _, m := range []protoreflect.ProtoMessage{&runtime.PodSandboxConfig{}, &runtime.ContainerConfig{}} {
		walk(m.ProtoReflect().Descriptor())
	}
	for name := range have {
		if name != "" && !seen[name] {
			t.Errorf("%s: section %q is about no message", fieldsDoc, name)
		}
	}
}

// isPlain says whether a message is but a value.
func isPlain(m protoreflect.MessageDescriptor) bool {
	return slices.Contains([]protoreflect.Name{"Int64Value", "KeyValue", "IDMapping", "PodSandboxMetadata", "ContainerMetadata"}, m.Name())
}

// The tests that the table names are there.
func TestDocumentedTestsExist(t *testing.T) {
	_, text := documented(t)
	out, err := exec.Command("git", "-C", "../..", "grep", "-hoE", `^func Test[A-Za-z0-9_]+|^\s+"[a-zA-Z][^"]+": +func\(s \*suite\)`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatalf("list tests: %v", err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "func "); ok {
			known[name] = true
		} else {
			known[strings.Split(line, `"`)[1]] = true
		}
	}
	for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(text, -1) {
		if !known[m[1]] {
			t.Errorf("%s names %s, which is not there", fieldsDoc, m[1])
		}
	}
	for _, m := range regexp.MustCompile("criwasm “([^”]+)”").FindAllStringSubmatch(text, -1) {
		if !known[m[1]] {
			t.Errorf("%s names the spec %q of criwasm, which is not there", fieldsDoc, m[1])
		}
	}
}
