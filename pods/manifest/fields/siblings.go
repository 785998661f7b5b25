package fields

import (
	"reflect"
	"strings"

	"github.com/sunaba-project/sunaba/runtimeclass/nearest"
)

// near is the field of a type that an unknown field at a path most likely stands for, as a path; ""
// if no path is close enough.
func near(t reflect.Type, path string) string {
	parent, last := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, last = path[:i], path[i+1:]
	}
	for name := range strings.SplitSeq(parent, ".") {
		if t = elem(t); name == "" {
			continue
		}
		name, _, _ = strings.Cut(name, "[")
		if t = fieldType(t, name); t == nil {
			return ""
		}
	}
	best := nearest.Of(last, names(elem(t)))
	if best == "" || parent == "" {
		return best
	}
	return parent + "." + best
}

// elem is what a type points to, or lists.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// fieldType is the type of a struct's field of this name in manifests, nil without one.
func fieldType(t reflect.Type, name string) reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		own, inline := fieldName(f)
		if inline {
			if found := fieldType(elem(f.Type), name); found != nil {
				return found
			}
		} else if own == name {
			return f.Type
		}
	}
	return nil
}

// names are the names of a struct's fields in manifests.
func names(t reflect.Type) []string {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var all []string
	for i := range t.NumField() {
		name, inline := fieldName(t.Field(i))
		if inline {
			all = append(all, names(elem(t.Field(i).Type))...)
		} else if name != "" && name != "-" {
			all = append(all, name)
		}
	}
	return all
}
