package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// maxDepth is how deep objects and lists stand in each other; a Pod needs less than 20.
const maxDepth = 64

// toJSON turns one document into JSON. Double keys are refused. JSON stays as it is: YAML knows no
// surrogate pairs.
func toJSON(d runtimeclass.Document) ([]byte, error) {
	if start := bytes.TrimSpace(d.Data); len(start) > 0 && start[0] == '{' && json.Valid(start) {
		return start, checkDepth(start)
	}
	if err := checkMarkers(d.Data); err != nil {
		return nil, err
	}
	if err := checkAliases(d.Data); err != nil {
		return nil, err
	}
	js, err := yaml.YAMLToJSONStrict(d.Data)
	if err != nil {
		return nil, cleaned(err)
	}
	return js, checkDepth(js)
}

// checkMarkers refuses text after a marker of YAML that ends a document or starts one on the same
// line: the decoder reads one document and would leave the rest out in silence.
func checkMarkers(data []byte) error {
	n, ended := 0, 0
	for line := range bytes.Lines(data) {
		n++
		text := bytes.TrimSpace(line)
		switch {
		case marks(line, "---"):
			return fields.Invalid(fmt.Sprintf("line %d: text after ---: write it on the next line", n))
		case ended > 0 && len(text) > 0 && text[0] != '#':
			return fields.Invalid(fmt.Sprintf("line %d: text after the ... of line %d: write --- between documents", n, ended))
		case marks(line, "..."):
			ended = n
		}
	}
	return nil
}

// marks says whether a line starts with a marker.
func marks(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n"))
}

// checkAliases refuses a document that is much larger with its aliases written out: an alias of a
// long text costs the decoder nothing, and each of them is written into the JSON.
func checkAliases(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 {
		return nil
	}
	var v any
	if err := goyaml.Unmarshal(data, &v); err != nil {
		return cleaned(err)
	}
	if left := measure(v, MaxFile); left < 0 {
		return fields.Invalid(fmt.Sprintf("is larger than %d bytes with its aliases written out", MaxFile))
	}
	return nil
}

// measure takes the length of a value's texts from left, and stops below zero.
func measure(v any, left int) int {
	left--
	switch v := v.(type) {
	case string:
		left -= len(v)
	case []any:
		for i := 0; i < len(v) && left >= 0; i++ {
			left = measure(v[i], left)
		}
	case map[any]any:
		for key, value := range v {
			if left < 0 {
				break
			}
			left = measure(value, measure(key, left))
		}
	}
	return left
}

// checkDepth refuses JSON in which objects and lists stand too deep in each other.
func checkDepth(js []byte) error {
	depth, text := 0, false
	for i := 0; i < len(js); i++ {
		switch c := js[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fields.Invalid(fmt.Sprintf("is more than %d levels deep", maxDepth))
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// strict decodes JSON. Unknown fields, fields in the wrong case and double fields are told in bad, so
// that they are told beside what else is wrong.
func strict(js []byte, into any, bad *fields.Problems) error {
	found, err := kjson.UnmarshalStrict(js, into)
	if err != nil {
		return cleaned(err)
	}
	for _, e := range found {
		text := cleaned(e).Error()
		if path, ok := strings.CutPrefix(text, "unknown field "); ok {
			if path, err := strconv.Unquote(path); err == nil {
				bad.Unknown(into, path)
				continue
			}
		}
		bad.Add("", "%s", text)
	}
	return nil
}

// cleaned writes a decoder's error on one line, without the names of Go's types, and in bounds.
func cleaned(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		advice := ""
		if wrong.Type.Kind() == reflect.String {
			advice = "; write it in quotes"
		}
		value := "a " + wrong.Value
		if wrong.Value == "object" || wrong.Value == "array" {
			value, advice = "an "+wrong.Value, ""
		}
		path := fieldPath(wrong.Field)
		if path == "" {
			return fields.Invalid("is " + value + ", not an object: write apiVersion, kind and metadata")
		}
		return fields.Invalid(fmt.Sprintf("%s: %s cannot stand here%s", path, value, advice))
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "\n", " ")), " ")
	const longest = 1000
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return fields.Invalid(text)
}

// fieldPath is the path of a field without the names of Go's types that stand inline in others.
func fieldPath(path string) string {
	parts := strings.Split(path, ".")
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part != "" && part[0] >= 'A' && part[0] <= 'Z' }), ".")
}
