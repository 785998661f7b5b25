// Package evictions keeps the last evictions of deleted pods that are to be made anew, so that
// their replacements keep the back-off, also if the agent is killed in between.
package evictions

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// maxFile bounds what is read back, in bytes.
const maxFile = 1 << 20

// Book has the last eviction of each deleted pod. It is owned by one goroutine; what Put
// returns may be called by any.
type Book struct {
	path  string
	write func(path string, data []byte, sync bool) error
	last  map[manifest.Key]entry
	kept  map[manifest.Key]bool // those that the file may have
	turn  uint64                // of the last Put

	mu      sync.Mutex
	written uint64 // the turn that is on the disk
}

// entry is one of the file. Source is where the pod was declared: one that is declared anew starts
// anew.
type entry struct {
	Key      manifest.Key       `json:"key"`
	Source   cycle.Source       `json:"source"`
	Eviction *pressure.Eviction `json:"eviction"`
}

// Open reads the book at path, which need not be there. write replaces files.
//
// # Errors
//
// Those of a file that cannot be read; the book is then empty and may be used.
func Open(path string, write func(path string, data []byte, sync bool) error) (*Book, error) {
	b := &Book{path: path, write: write, last: map[manifest.Key]entry{}, kept: map[manifest.Key]bool{}}
	data, err := regular.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	var list []entry
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return b, fmt.Errorf("read evictions: %w", err)
	}
	for _, e := range list {
		if e.Eviction != nil {
			b.last[e.Key], b.kept[e.Key] = e, true
		}
	}
	return b, nil
}

// Put notes the eviction of a pod that is about to go. save writes the book, durably; the pod's own
// record may be removed after that.
func (b *Book) Put(key manifest.Key, source cycle.Source, e *pressure.Eviction) (save func() error) {
	b.last[key], b.kept[key] = entry{key, source, e}, true
	b.turn++
	turn := b.turn
	list := make([]entry, 0, len(b.last))
	for _, e := range b.last {
		list = append(list, e)
	}
	return func() error {
		data, err := json.Marshal(list)
		if err != nil {
			return fmt.Errorf("encode evictions: %w", err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if turn <= b.written {
			return nil
		}
		if err := b.write(b.path, data, true); err != nil {
			return fmt.Errorf("write evictions: %w", err)
		}
		b.written = turn
		return nil
	}
}

// Take is the last eviction of the pod in whose place one is made, nil if it was declared elsewhere
// or not the same. It is forgotten with the next save: the new pod has it on its own record.
func (b *Book) Take(key manifest.Key, source cycle.Source) *pressure.Eviction {
	e := b.last[key]
	delete(b.last, key)
	if e.Source != source {
		return nil
	}
	return e.Eviction
}

// Forget drops the evictions of pods that are not wanted any more, and the file with the last of them.
// A pod that was taken and is wanted still may not be on record yet: the file stays for it.
func (b *Book) Forget(wanted func(manifest.Key) bool) {
	for key := range b.last {
		if !wanted(key) {
			delete(b.last, key)
		}
	}
	if len(b.kept) == 0 {
		return
	}
	for key := range b.kept {
		if wanted(key) {
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written = b.turn // a save that has not started has nothing to write
	if err := os.Remove(b.path); err == nil || errors.Is(err, fs.ErrNotExist) {
		clear(b.kept)
	}
}
