package handoff

import (
	"os"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Remains is what a dead shim left of one container.
type Remains struct {
	ID      string
	Bundle  string
	Version int // the format version, 0 = unknown
	Streams map[string]*os.File
	Execs   []int // pids of what was executed
	Box     map[string]supervisor.Kept
}

// Remains returns what an earlier shim left, by containers.
func (h *Handoff) Remains() []*Remains {
	if h == nil {
		return nil
	}
	var all []*Remains
	for _, k := range h.to.Left() { // sorted by key
		if k.Key == keyHistory {
			continue
		}
		id, _, _ := strings.Cut(k.Key, "/")
		if len(all) == 0 || all[len(all)-1].ID != id {
			all = append(all, &Remains{ID: id, Streams: map[string]*os.File{}, Box: map[string]supervisor.Kept{}})
		}
		all[len(all)-1].add(strings.TrimPrefix(k.Key, id), k)
	}
	return all
}

func (r *Remains) add(key string, k supervisor.Kept) {
	name, boxed := strings.CutPrefix(key, keyBox)
	switch {
	case key == keyBundle:
		r.Bundle = string(k.Note)
		version, path, _ := strings.Cut(r.Bundle, " ")
		if n, err := strconv.Atoi(version); err == nil {
			r.Version, r.Bundle = n, path
		}
	case key == keyStdin && len(k.Files) == 1:
		r.Streams[stdio.EndStdin] = k.Files[0]
	case key == keyStreams:
		for i, name := range strings.Fields(string(k.Note)) {
			if i < len(k.Files) {
				r.Streams[name] = k.Files[i]
			}
		}
	case strings.HasPrefix(key, keyExec):
		if pid, err := strconv.Atoi(string(k.Note)); err == nil {
			r.Execs = append(r.Execs, pid)
		}
	case boxed:
		r.Box[name] = k
	}
}

// Close closes the files, unless they were taken.
func (r *Remains) Close() {
	for _, f := range r.Streams {
		f.Close()
	}
	for _, k := range r.Box {
		for _, f := range k.Files {
			f.Close()
		}
	}
}
