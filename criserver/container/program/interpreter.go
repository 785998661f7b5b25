package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/host/regular"
)

// Bounds of the kernel's: see fs/exec.c of its sources.
const (
	maxInterpreters = 5  // scripts whose interpreters are scripts
	maxLinks        = 40 // links in a path
)

// uninterpreted says why the kernel cannot execute a script or an ELF program that is native: its
// interpreter is not in the image, or cannot be executed either. The kernel would say that the
// program itself does not exist. "" if that is not certain.
func (s Search) uninterpreted(p Program) string {
	text := ""
	for range maxInterpreters {
		name, script := p.interpreter(s.Root)
		if !path.IsAbs(name) || s.leadsAway(name) {
			return ""
		}
		if text != "" {
			text += ", which "
		}
		if script {
			text += fmt.Sprintf("is a script for %q", name)
		} else {
			text += fmt.Sprintf("is an ELF program with the interpreter %q", name)
		}
		next, err := LookUp(s.Root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			return text + ", which does not exist in the image"
		case err != nil:
			return ""
		}
		why, barred := next.barred()
		switch {
		case barred && why == "", !barred && !script: // the kernel does not look at the interpreter of an interpreter of ELF
			return ""
		case barred:
			return text + ", which " + why
		case !next.native():
			return text + ", which " + next.kind()
		}
		p = next
	}
	return ""
}

// interpreter returns the program that the kernel executes instead of a script, or that it loads
// beside an ELF program; "" without one, or the file is such that the kernel refuses it by itself.
func (p Program) interpreter(root string) (name string, script bool) {
	if binfmt.IsScript(p.head) {
		return binfmt.ScriptInterpreter(p.head), true
	}
	f, err := regular.OpenIn(root, p.Path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	return binfmt.ELFInterpreter(f, p.head), false
}

// leadsAway says whether a path leads, by itself or by its links, to where the container sees
// something else than the image. It is for what is missing in the image: a mount may have it.
func (s Search) leadsAway(name string) bool {
	at, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if at = path.Join(at, part); s.hidden(at) { // part may be empty, "." or ".."
			return true
		}
		to, err := os.Readlink(filepath.Join(s.Root, at)) // at is free of links except in its last name
		if err != nil {
			continue
		}
		if links++; links > maxLinks {
			return true
		}
		if rest = append(strings.Split(to, "/"), rest...); path.IsAbs(to) {
			at = "/"
		} else {
			at = path.Dir(at)
		}
	}
	return s.hidden(at)
}
