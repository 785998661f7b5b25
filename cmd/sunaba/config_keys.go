package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/runtimeclass/nearest"
)

// removedKeys says what happened to keys that a configuration file once had. "*" is the name of a
// handler.
var removedKeys = map[string]string{
	"images.parallel_fetches":    "removed: all pulls together fetch 8 blobs at a time",
	"images.parallel_layers":     "removed: one pull fetches 4 layers at a time, and all pulls together 8",
	"images.range_threshold_mib": "removed: a blob of at least 32 MiB is fetched in parts",
	"images.range_size_mib":      "removed: the parts of a blob have 4 MiB",
	"images.range_memory_mib":    "removed: the parts of blobs that wait take at most 32 MiB",
	"images.connect_timeout":     "removed: the limit is 30s; dial_timeout in a registry's hosts.toml sets another one",
	"images.retries":             "removed: what may succeed later is retried 5 times",
	"images.max_retry_after":     "removed: the limit is 2m",
	"images.preload_dir":         "removed: images are imported from the folder \"preload\" below --root, which may be a symbolic link",
	"wasm.cache":                 "removed: compiled modules are in the folder \"wasm\" below --root",
	"wasm.parallel_compilations": "removed: half of the machine's processors compile, at least 2 and at most 8",
	"logs.burst_kib":             "removed: a container may write at once what rate_kib allows in ten seconds",
	"handlers.*.logs.burst_kib":  "removed: a container may write at once what rate_kib allows in ten seconds",
}

// unknownKey is the text about a key that no field of the configuration has.
func unknownKey(key []string) string {
	name := strings.Join(key, ".")
	if removed := removedKeys[strings.Join(general(key), ".")]; removed != "" {
		return name + ": " + removed
	}
	return fmt.Sprintf("unknown field %q; the nearest known one is %q", name, nearestKey(key))
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
func nearestKey(key []string) string {
	wrong := strings.Join(general(key), ".")
	last := key[len(key)-1]
	best, least := "", -1
	for _, known := range knownKeys() {
		n := nearest.Distance(wrong, known)
		if known == last || strings.HasSuffix(known, "."+last) {
			n = 0
		}
		if least < 0 || n < least {
			best, least = known, n
		}
	}
	if len(key) > 1 && key[0] == "handlers" {
		best = strings.Replace(best, "*", key[1], 1)
	}
	return strings.Replace(best, "*", "NAME", 1)
}

// knownKeys are the names of all tables and fields, in their alphabetical order.
func knownKeys() []string {
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
	add("", reflect.TypeFor[config]())
	return slices.Sorted(maps.Keys(keys))
}
