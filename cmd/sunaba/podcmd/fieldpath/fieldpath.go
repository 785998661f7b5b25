// Package fieldpath reads fields of objects by JSONPath, as kubectl's -o jsonpath, -o
// custom-columns, --sort-by and wait --for=jsonpath do.
package fieldpath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"k8s.io/client-go/util/jsonpath"
	kjson "sigs.k8s.io/json"
)

// Path is a JSONPath, or a template with several.
type Path struct {
	text string
	path *jsonpath.JSONPath
}

// Template is a template as -o jsonpath has it: "{.status.phase}{\"\\n\"}". What an object has not
// prints nothing.
func Template(text string) (*Path, error) {
	p := &Path{text, jsonpath.New("out").AllowMissingKeys(true)}
	if err := p.path.Parse(text); err != nil {
		return nil, fmt.Errorf("error parsing jsonpath %s, %w", text, err)
	}
	return p, nil
}

// JSONTemplate is Template whose values are printed as a JSON array, as -o jsonpath-as-json does.
func JSONTemplate(text string) (*Path, error) {
	p, err := Template(text)
	if err == nil {
		p.path.EnableJSONOutput(true)
	}
	return p, err
}

// Field is one field: "x.y", with or without a point before it and braces around it.
func Field(text string) (*Path, error) {
	m := regexp.MustCompile(`^(?:\{\.?([^{}]+)\}|\.?([^{}]+))$`).FindStringSubmatch(text)
	if m == nil {
		return nil, errors.New("unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'")
	}
	p, err := Template("{." + m[1] + m[2] + "}")
	if err != nil {
		return nil, err
	}
	p.text = text
	return p, nil
}

// Print is the template's text for an object in JSON.
func (p *Path) Print(raw json.RawMessage) ([]byte, error) {
	object, err := Decode(raw)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := p.path.Execute(&b, object); err != nil {
		return nil, fmt.Errorf("error executing jsonpath %q: %w", p.text, err)
	}
	return b.Bytes(), nil
}

// Values are those of an object in JSON. Numbers are int64 or float64, as they are written.
func (p *Path) Values(raw json.RawMessage) ([]any, error) {
	object, err := Decode(raw)
	if err != nil {
		return nil, err
	}
	found, err := p.path.FindResults(object)
	if err != nil {
		return nil, fmt.Errorf("error executing jsonpath %q: %w", p.text, err)
	}
	var all []any
	for _, values := range found {
		for _, v := range values {
			if v.IsValid() && v.CanInterface() && (v.Kind() != reflect.Interface || !v.IsNil()) {
				all = append(all, v.Interface())
			}
		}
	}
	return all, nil
}

// Decode decodes JSON with whole numbers as such: a float64 of a million prints as 1e+06.
func Decode(raw json.RawMessage) (any, error) {
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &v); err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	return v, nil
}
