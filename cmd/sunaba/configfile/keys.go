package configfile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/runtimeclass/nearest"
)

// unknownKey is the text about a key that is not known.
func (f File) unknownKey(key, known []string) string {
	name := strings.Join(key, ".")
	if removed := f.Removed[strings.Join(general(key), ".")]; removed != "" {
		return name + ": " + removed
	}
	return fmt.Sprintf("unknown field %q; the nearest known one is %q", name, nearestKey(key, known))
}

// general is a key with "*" for the name of a handler.
func general(key []string) []string {
	if len(key) > 1 && key[0] == "handlers" {
		key = slices.Clone(key)
		key[1] = "*"
	}
	return key
}

// nearestKey is the known key that a wrong one most likely stands for: the one of another table
// with the same name, else the one that the fewest changes of letters make of it.
func nearestKey(key, known []string) string {
	wrong := strings.Join(general(key), ".")
	last := key[len(key)-1]
	best, least := "", -1
	for _, k := range known {
		n := nearest.Distance(wrong, k)
		if k == last || strings.HasSuffix(k, "."+last) {
			n = 0
		}
		if least < 0 || n < least {
			best, least = k, n
		}
	}
	if len(key) > 1 && key[0] == "handlers" {
		best = strings.Replace(best, "*", key[1], 1)
	}
	return strings.Replace(best, "*", "NAME", 1)
}

// Keys are the names of all tables and fields of a configuration, a struct or a pointer to one, in
// their alphabetical order. "*" is the name of a table in a map.
func Keys(c any) []string {
	keys := map[string]bool{}
	var add func(prefix string, t reflect.Type)
	add = func(prefix string, t reflect.Type) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t.Kind() == reflect.Struct:
			for i := range t.NumField() {
				name := prefix + t.Field(i).Tag.Get("toml")
				keys[name] = true
				add(name+".", t.Field(i).Type)
			}
		case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Struct:
			add(prefix+"*.", t.Elem())
		}
	}
	add("", reflect.TypeOf(c))
	return slices.Sorted(maps.Keys(keys))
}
