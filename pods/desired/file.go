package desired

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/pods/cycle"
)

// Status is the state of a manifest file.
type Status string

// The states of files.
const (
	// Loaded: its objects are those of its present content.
	Loaded Status = "Loaded"
	// Refused: its present content is not taken. The last good version stays in use, if there is one.
	Refused Status = "Refused"
	// Gone: it does not exist, and its objects keep running until that is certain.
	Gone Status = "Gone"
)

// File is the state of a manifest file, or of a folder that cannot be listed.
type File struct {
	// Path is the file's, below one of the folders, or that of a folder.
	Path   string
	Status Status
	// Objects is how many objects of it are in the set.
	Objects int
	// Since is when Status or its cause last changed.
	Since time.Time
	// Message is why the file is not Loaded, and what stays in use instead. At most 1200 bytes.
	Message string
	// Notes are what is ignored in the file's good version: "document 2, service default/web: is
	// ignored: …". At most 100, and then how many more there are.
	Notes []string
}

// longestMessage bounds the reason that a file is refused, in bytes: a manifest may have as many
// wrong fields as it likes.
const longestMessage = 1024

// Files are the states of all files, by folder and name, each folder that cannot be listed before
// its files. The slice is the caller's.
func (s *Set) Files() []File {
	b, now := s.book, time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []File
	for _, folder := range b.folders {
		trouble, broken := b.broken[folder]
		if broken {
			out = append(out, File{Path: folder, Status: Gone, Since: trouble.since, Message: trouble.message})
		}
		for _, path := range slices.Sorted(maps.Keys(b.files)) {
			if filepath.Dir(path) == folder {
				out = append(out, b.state(b.files[path], broken, now))
			}
		}
	}
	return out
}

func (b *book) state(f *file, broken bool, now time.Time) File {
	out := File{Path: f.path, Status: f.status, Since: f.since, Message: f.message}
	goesOn := ""
	if f.good != nil {
		for _, e := range f.good.entries {
			if b.owners[e.Key] == f {
				out.Objects++
			}
		}
		out.Notes = slices.Clone(f.good.notes)
		goesOn = fmt.Sprintf("the version of %s stays in use", cycle.Age(f.good.taken, now))
	}
	switch {
	case broken:
		out.Status, out.Message = Gone, "its folder cannot be listed"
	case f.missing:
		out.Status, out.Message = Gone, "is not in its folder"
	}
	if out.Message != "" && out.Status != Loaded && goesOn != "" {
		out.Message += "; " + goesOn
	}
	return out
}

// reason is an error about a file as a message of Files: on one line, without the path and its
// class, and no longer than that may be.
func reason(path string, err error) string {
	message := strings.ReplaceAll(strings.ReplaceAll(err.Error(), path+": ", ""), "\n", "; ")
	for _, class := range []error{errdefs.ErrInvalidArgument, errdefs.ErrAlreadyExists, errdefs.ErrFailedPrecondition, errdefs.ErrResourceExhausted} {
		message = strings.TrimSuffix(message, ": "+class.Error())
	}
	if len(message) <= longestMessage {
		return message
	}
	end := longestMessage
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "…"
}
