package desired

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Verdict is what was decided about a manifest file.
type Verdict struct {
	// Path is the file's, Status Loaded or Refused.
	Path   string
	Status Status
	// Again says that an earlier run may have come to the same verdict about the same bytes.
	Again bool
	// Message is why the file is refused, LastGood says that an earlier version of it stays in use.
	Message  string
	LastGood bool
	// Objects is how many objects a loaded file has, Notes are File's.
	Objects int
	Notes   []string
}

const (
	// mostNotes bounds what is said of one file: a manifest may have as many fields without effect
	// as it likes.
	mostNotes = 100
	// mostVerdicts bounds those that nobody fetches.
	mostVerdicts = 1000
)

// Verdicts are those since the last call, from the oldest to the newest.
func (s *Set) Verdicts() []Verdict {
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told
	b.told = nil
	return told
}

// Verdicts are none: there are no files.
func (f *Fixed) Verdicts() []Verdict { return nil }

// tell has Verdicts tell of a file's present state. same says that it may be that of the same bytes
// in an earlier run, if the file existed when this one started.
func (b *book) tell(f *file, same bool) {
	v := Verdict{Path: f.path, Status: f.status, Again: same && b.first[f.path], Message: f.message}
	delete(b.first, f.path)
	if f.good != nil {
		v.LastGood = f.status == Refused
		v.Objects, v.Notes = len(f.good.entries), slices.Clone(f.good.notes)
	}
	if len(b.told) >= mostVerdicts {
		b.told = b.told[1:]
	}
	b.told = append(b.told, v)
}

// setFirst notes the files of a folder that is listed for the first time.
func (b *book) setFirst(folder string, names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		b.first[filepath.Join(folder, name)] = true
	}
}

// shortNotes are a file's notes without its path, and no more than there may be.
func shortNotes(path string, notes []string) []string {
	if len(notes) == 0 {
		return nil
	}
	short := make([]string, 0, min(len(notes), mostNotes+1))
	for _, n := range notes[:min(len(notes), mostNotes)] {
		short = append(short, strings.TrimPrefix(n, path+": "))
	}
	if more := len(notes) - mostNotes; more > 0 {
		short = append(short, fmt.Sprintf("%d more are not listed", more))
	}
	return short
}
