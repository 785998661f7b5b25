// Package configfile decodes a configuration file in TOML and says at which of its lines something
// is wrong.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// File is a configuration file.
type File struct {
	Name string
	Data []byte
	// Removed says what happened to keys that the file may have had in another release. "*" is the
	// name of a handler.
	Removed map[string]string
}

// Decode fills c, a pointer to a struct, with what the file says.
//
// # Errors
//
// Those of TOML, of a value's type, and of keys that c has not, each after the file's name and the
// line.
func (f File) Decode(c any) error {
	err := toml.NewDecoder(bytes.NewReader(f.Data)).DisallowUnknownFields().Decode(c)
	if err == nil {
		return nil
	}
	if missing, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		var all []error
		known := Keys(c)
		for _, e := range missing.Errors {
			line, _ := e.Position()
			all = append(all, fmt.Errorf("%s:%d: %s", f.Name, line, f.unknownKey(e.Key(), known)))
		}
		return errors.Join(all...)
	}
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := bad.Position()
		return fmt.Errorf("%s:%d: %s", f.Name, line, strings.TrimPrefix(bad.Error(), "toml: "))
	}
	return fmt.Errorf("%s: %w", f.Name, err)
}

// Locate puts the file's name before each of the errors that are joined in err, and the line of the
// key with which the error's text starts. For a key that the file leaves out it is that of its table.
func (f File) Locate(err error) error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var located []error
		for _, one := range all.Unwrap() {
			located = append(located, f.Locate(one))
		}
		return errors.Join(located...)
	}
	if line := f.line(startKey(err.Error())); line > 0 {
		return fmt.Errorf("%s:%d: %w", f.Name, line, err)
	}
	return fmt.Errorf("%s: %w", f.Name, err)
}

// startKey is the key with which a text starts.
func startKey(text string) (key []string) {
	onePart := regexp.MustCompile(`^(?:"([^"]*)"|([A-Za-z0-9_-]+))(\.?)`) // and what ends it
	for {
		part := onePart.FindStringSubmatch(text)
		if part == nil {
			return key
		}
		key = append(key, part[1]+part[2])
		if part[3] == "" {
			return key
		}
		text = text[len(part[0]):]
	}
}

// line is the line of a key, or of the innermost table around it that the file names; 0 for none.
func (f File) line(key []string) int {
	best, deepest := 0, 0
	var table []string
	var p unstable.Parser
	p.Reset(f.Data)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable && e.Kind != unstable.KeyValue {
			continue
		}
		var path []string
		if e.Kind == unstable.KeyValue {
			path = append(path, table...)
		}
		at := 0
		for parts := e.Key(); parts.Next(); {
			path = append(path, string(parts.Node().Data))
			at = p.Shape(parts.Node().Raw).Start.Line
		}
		if e.Kind != unstable.KeyValue {
			table = path
		}
		if n := common(path, key); n > deepest {
			best, deepest = at, n
		}
	}
	return best
}

// common is how many parts a key of the file says of another one.
func common(path, key []string) int {
	for i := range key {
		if i == len(path) || path[i] != key[i] {
			return i
		}
	}
	return len(key)
}
