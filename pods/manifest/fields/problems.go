// Package fields says how each field of the API in a manifest is treated, and collects what is
// wrong with the fields of one object.
package fields

import (
	"fmt"
	"reflect"
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
	all  []problem
	more int
	// meant are the fields that unknown ones most likely stand for: they are not missing.
	meant []string
}

// problem is what is wrong with one field; path is "" for what is wrong with the whole.
type problem struct{ path, text string }

// Add tells what is wrong with the field at path.
func (p *Problems) Add(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	p.add(problem{path, text})
}

func (p *Problems) add(one problem) {
	if len(p.all) == maxProblems {
		p.more++
		return
	}
	p.all = append(p.all, one)
}

// Unknown tells of a field that an object of this type does not have, and of the one that is nearest.
func (p *Problems) Unknown(object any, path string) {
	text := fmt.Sprintf("unknown field %q", path)
	if meant := near(reflect.TypeOf(object), path); meant != "" {
		p.meant = append(p.meant, meant)
		text += fmt.Sprintf("; did you mean %q?", meant[strings.LastIndexByte(meant, '.')+1:])
	}
	p.add(problem{path, text})
}

// Once is Add, but says the same only once.
func (p *Problems) Once(path, text string) {
	if !slices.Contains(p.all, problem{path, path + ": " + text}) {
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
	if value == "" && !slices.Contains(p.meant, path) {
		p.Add(path, "is required")
	}
	return value != ""
}

// OneOf refuses an unknown value.
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
	if len(p.all) == 0 {
		return nil
	}
	return Refusal{problems: p.all, more: p.more}
}

// Refusal is everything that is wrong with one object. Its class is ErrInvalidArgument.
type Refusal struct {
	problems []problem
	more     int
	line     func(path string) int
}

// Error tells of all of it on one line.
func (r Refusal) Error() string {
	var texts []string
	for _, one := range r.problems {
		text := one.text
		if r.line != nil && one.path != "" {
			if n := r.line(one.path); n > 0 {
				text += fmt.Sprintf(" (line %d)", n)
			}
		}
		texts = append(texts, text)
	}
	text := strings.Join(texts, "; ")
	if r.more > 0 {
		text += fmt.Sprintf("; and %d more", r.more)
	}
	return text
}

// Unwrap returns the class.
func (r Refusal) Unwrap() error { return errdefs.ErrInvalidArgument }

// At returns the refusal with the line of each field, which line tells by the field's path.
func (r Refusal) At(line func(path string) int) Refusal {
	r.line = line
	return r
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
