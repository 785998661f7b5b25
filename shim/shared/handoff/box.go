package handoff

import "os"

// Box is where an engine keeps files of one container that must outlive the shim: links, listeners.
// A nil Box keeps nothing, because no successor would adopt the container. What is in it is dropped
// with the container.
type Box struct {
	handoff *Handoff
	prefix  string
}

// Keep keeps copies of files, with a note, under a name and in place of what was there. When it has
// returned, they outlive the shim. As long as they are kept, no process sees the end of a pipe or
// socket of which they are ends: Drop them before closing means something.
func (b *Box) Keep(name string, note []byte, files ...*os.File) error {
	if b == nil {
		return nil
	}
	return b.handoff.keep(b.prefix+name, note, files...)
}

// Drop drops what is kept under a name. There need not be anything.
func (b *Box) Drop(name string) error {
	if b == nil {
		return nil
	}
	return b.handoff.drop(b.prefix + name)
}
