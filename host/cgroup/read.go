package cgroup

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Max is what Number returns for a limit of version 2 that is "max": unlimited.
const Max = math.MaxUint64

// Number reads one of the group's files that holds one number. The controller matters on version 1
// only.
func (g *Group) Number(controller, name string) (uint64, error) {
	var room [64]byte
	text, err := g.record(room[:0], controller, name)
	if err != nil {
		return 0, err
	}
	text = bytes.TrimSpace(text)
	if string(text) == "max" {
		return Max, nil
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("file %s: %w", name, err)
	}
	return n, nil
}

// Table is what a file with lines of "name number" holds.
type Table []byte

// Find returns a name's number, and whether there is one.
func (t Table) Find(name string) (n uint64, found bool) {
	for line := range bytes.Lines(t) {
		if len(line) > len(name) && line[len(name)] == ' ' && string(line[:len(name)]) == name {
			n, err := strconv.ParseUint(string(bytes.TrimSuffix(line[len(name)+1:], []byte("\n"))), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// Of returns a name's number, 0 without one.
func (t Table) Of(name string) uint64 {
	n, _ := t.Find(name)
	return n
}

// Table reads one of the group's files that has lines of "name number", into room that the caller
// has.
func (g *Group) Table(room []byte, controller, name string) (Table, error) {
	return g.record(room, controller, name)
}

// record reads one of the group's files into room.
func (g *Group) record(room []byte, controller, name string) ([]byte, error) {
	root := g.mounts.root(controller)
	if root == "" {
		return kernelfile.AppendRecord(room) // there is no such hierarchy
	}
	return kernelfile.AppendRecord(room, root, g.path, "/", name)
}

// Figures returns the numbers of some names of a Table in their order, 0 for one that is missing.
func (g *Group) Figures(controller, name string, names []string) []uint64 {
	out := make([]uint64, len(names))
	var room [4096]byte
	table, _ := g.Table(room[:0], controller, name) // what cannot be read is missing
	for i, name := range names {
		out[i] = table.Of(name)
	}
	return out
}
