package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Listing is what a folder of records holds, as Read finds it.
type Listing[R any] struct {
	Records map[string]R
	// Files are the names of their files, by the ids of the records.
	Files map[string]string
	// Damaged are files that are no records, by their names, each with what is wrong with it;
	// Unfinished are the remains of writes that were cut short.
	Damaged    map[string]string
	Unfinished []string
	// Newer are files of a newer format than Version, by their names.
	Newer map[string]int
	// Older are records of which a newer version is damaged, by their ids, each with what is wrong
	// with that and which line is used.
	Older map[string]string
}

// Read reads all records in dir without opening it as a store: it changes nothing, so a server may
// have it open. A folder that is not there holds nothing.
func Read[R any](dir string, check func(id string, rec R) error) (Listing[R], error) {
	l := Listing[R]{Records: map[string]R{}, Files: map[string]string{}, Damaged: map[string]string{}, Newer: map[string]int{}, Older: map[string]string{}}
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, fmt.Errorf("read state folder %q: %w", dir, err)
	}
	s := &Store[R]{dir: dir, check: check}
	for _, n := range names {
		switch {
		case durable.Unfinished(n.Name()):
			l.Unfinished = append(l.Unfinished, n.Name())
		case !strings.HasSuffix(n.Name(), recordSuffix):
			l.Damaged[n.Name()] = "it is no record"
		default:
			l.add(n.Name(), s.load(n.Name()))
		}
	}
	return l, nil
}

func (l *Listing[R]) add(name string, v version[R]) {
	var newer newerFormat
	switch {
	case errors.Is(v.err, fs.ErrNotExist), errors.Is(v.err, errFree): // removed meanwhile
	case errors.Is(v.err, errUnfinished):
		l.Unfinished = append(l.Unfinished, name)
	case errors.As(v.err, &newer):
		l.Newer[name] = newer.format
	case v.err != nil:
		l.Damaged[name] = v.err.Error()
	case l.Files[v.id] != "":
		l.Damaged[name] = fmt.Sprintf("record %q is in %q too", v.id, l.Files[v.id])
	default:
		l.Records[v.id], l.Files[v.id] = v.rec, name
		if v.lost != nil {
			l.Older[v.id] = v.lost.Error()
		}
	}
}
