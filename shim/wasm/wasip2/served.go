package wasip2

import (
	"maps"
	"slices"
)

// Interfaces are the interfaces that are served, without their versions, sorted.
func Interfaces() []string { return slices.Sorted(maps.Keys(interfaces)) }
