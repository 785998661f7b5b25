// Package fields says what becomes of each field of the API in a manifest, and collects what is
// wrong with the fields of one object.
package fields

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// maxProblems are told of one object; more are counted.
const maxProblems = 10

// maxQuoted is the length of a foreign text in an error.
const maxQuoted = 80

// Problems collects what is wrong with one object. The zero value is ready for use.
type Problems struct {
	texts []string
	more  int
}

// Add tells what is wrong with the field at path.
func (p *Problems) Add(path, format string, args ...any) {
	if len(p.texts) == maxProblems {
		p.more++
		return
	}
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	p.texts = append(p.texts, text)
}

// Once is Add, but says the same only once.
func (p *Problems) Once(path, text string) {
	if !slices.Contains(p.texts, path+": "+text) {
		p.Add(path, "%s", text)
	}
}

// Value tells what is wrong with a field's value, once for each cause. No cause is no problem.
func (p *Problems) Value(path string, value any, causes ...string) {
	for _, cause := range causes {
		p.Add(path, "%s: %s", Quote(value), cause)
	}
}

// Required refuses an empty field. It says whether the field has a value.
func (p *Problems) Required(path, value string) bool {
	if value == "" {
		p.Add(path, "is required")
	}
	return value != ""
}

// OneOf refuses a value that is none of those that are known.
func OneOf[T ~string](p *Problems, path string, value T, known ...T) {
	var names []string
	for _, k := range known {
		if value == k {
			return
		}
		if k != "" {
			names = append(names, string(k))
		}
	}
	p.Value(path, string(value), "is not known (known: "+strings.Join(names, ", ")+")")
}

// Between refuses a number out of bounds.
func Between[T ~int32 | ~int64 | ~int](p *Problems, path string, value, low, high T) {
	if value < low || value > high {
		p.Value(path, value, fmt.Sprintf("must be between %d and %d, inclusive", low, high))
	}
}

// Err is nil, or of class ErrInvalidArgument.
func (p *Problems) Err() error {
	if len(p.texts) == 0 {
		return nil
	}
	text := strings.Join(p.texts, "; ")
	if p.more > 0 {
		text += fmt.Sprintf("; and %d more", p.more)
	}
	return Invalid(text)
}

// Quote writes a value for an error, cut where it is long.
func Quote(value any) string {
	s, ok := value.(string)
	if !ok {
		return fmt.Sprint(value)
	}
	if len(s) > maxQuoted {
		return fmt.Sprintf("%q…", s[:maxQuoted])
	}
	return fmt.Sprintf("%q", s)
}

// Invalid returns an error of class ErrInvalidArgument that has no other text than this.
func Invalid(text string) error { return invalid{text} }

type invalid struct{ text string }

func (e invalid) Error() string { return e.text }

func (e invalid) Unwrap() error { return errdefs.ErrInvalidArgument }
