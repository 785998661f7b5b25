package program

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// Search looks for the program of a command.
type Search struct {
	Root    string      // of the image, free of links
	Names   []string    // where the program may be, see spec.Programs
	Covered []string    // folders and files of the image that the container does not see
	Others  func() bool // see facts.RunsOtherFormats
}

// hidden says whether the container sees something else at one of these paths.
func (s Search) hidden(paths ...string) bool {
	return slices.ContainsFunc(paths, func(at string) bool {
		at = path.Clean(at)
		return slices.ContainsFunc(s.Covered, func(over string) bool {
			return over == "/" || at == over || strings.HasPrefix(at, over+"/")
		})
	})
}

// command is how the container calls its program, and single says that this is a path.
func (s Search) command() (name string, single bool) {
	if len(s.Names) == 1 {
		return s.Names[0], true
	}
	return path.Base(s.Names[0]), false
}

// NotWasm says why nothing can run the program of an image whose platform is WebAssembly: it is no
// module. "" if that is not certain.
func (s Search) NotWasm(platform string) string {
	name, single := s.command()
	if s.hidden(s.Names...) {
		return ""
	}
	p, err := First(s.Root, s.Names)
	switch {
	case err == nil && s.hidden(p.Path), err != nil && !errdefs.IsNotFound(err):
		return ""
	case err == nil:
		return fmt.Sprintf("command %q: the image is for %s, and %q is not a WebAssembly module: it %s", name, platform, p.Path, p.kind())
	case single:
		if p, err := LookUp(s.Root, name); err == nil {
			return fmt.Sprintf("command %q: %s", name, p.kind())
		}
		return fmt.Sprintf("command %q: it does not exist in the image", name)
	}
	return fmt.Sprintf("command %q: it does not exist in the image: looked in PATH %q and in the working directory",
		name, strings.Join(s.folders(), ":"))
}

// folders are those of PATH.
func (s Search) folders() []string {
	var all []string
	for _, name := range s.Names[:len(s.Names)-1] { // the last is the working directory
		all = append(all, path.Dir(name))
	}
	return all
}

// NotExecutable says why nothing can execute the program of a Linux container, which is there. ""
// if that is not certain.
func (s Search) NotExecutable() string {
	name, single := s.command()
	for _, at := range s.Names {
		p, err := LookUp(s.Root, at)
		if s.hidden(at, p.Path) {
			return ""
		}
		if err != nil || !single && (!p.Mode.IsRegular() || p.Mode&0o111 == 0) {
			continue // a name is looked for in the next folder
		}
		why, barred := p.barred()
		switch {
		case barred:
		case p.native():
			why = s.uninterpreted(p)
		default:
			why = p.kind()
		}
		if why == "" || !barred && s.Others() {
			return ""
		}
		return fmt.Sprintf("command %q: %q %s", name, p.Path, why)
	}
	return ""
}
