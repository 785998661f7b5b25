package cgroup

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Max is what Number returns for a limit of version 2 that is "max": unlimited.
const Max = math.MaxUint64

// Number reads one of the group's files that holds one number. The controller matters on version 1
// only.
func (g *Group) Number(controller, name string) (uint64, error) {
	text, err := kernelfile.ReadRecord(g.File(controller, name))
	if err != nil {
		return 0, err
	}
	text = strings.TrimSpace(text)
	if text == "max" {
		return Max, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("file %s: %w", name, err)
	}
	return n, nil
}

// Table reads one of the group's files that has lines of "name number".
func (g *Group) Table(controller, name string) (map[string]uint64, error) {
	return readTable(g.File(controller, name))
}

func readTable(path string) (map[string]uint64, error) {
	text, err := kernelfile.ReadRecord(path)
	if err != nil {
		return nil, err
	}
	table := make(map[string]uint64, strings.Count(text, "\n"))
	for name, n := range figures(text) {
		table[name] = n
	}
	return table, nil
}

// Figures is Table for some names: it returns their numbers in their order, 0 for one that is
// missing.
func (g *Group) Figures(controller, name string, names []string) []uint64 {
	out := make([]uint64, len(names))
	text, err := kernelfile.ReadRecord(g.File(controller, name))
	if err != nil {
		return out
	}
	for name, n := range figures(text) {
		if i := slices.Index(names, name); i >= 0 {
			out[i] = n
		}
	}
	return out
}

// figures are the lines "name number" of a text. Other lines are skipped.
func figures(text string) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, err := strconv.ParseUint(value, 10, 64); err == nil && name != "" && !yield(name, n) {
				return
			}
		}
	}
}
