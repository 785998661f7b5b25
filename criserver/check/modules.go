package check

import (
	"context"
	"fmt"
	"time"

	"github.com/sunaba-project/sunaba/images"
)

// Modules are the node's compiled modules, which others keep.
type Modules interface {
	// Kept returns what is kept of each module.
	Kept() ([]images.Prepared, error)
	// Faults returns entries that are not whole, and what compilations that were killed have left.
	Faults() ([]Fault, error)
	// Drop removes what is kept of a module.
	Drop(digest string) error
}

// Fault is something among the compiled modules that is as good as not there.
type Fault struct {
	Subject, What string // as of a Finding
	Remove        func() error
}

// modules looks for compiled modules that nothing needs, and for those that are none.
func (j *judge) modules() {
	do := "run sunaba images gc, or check --repair with the server stopped"
	for _, p := range j.seen.stray {
		drop := func(context.Context) error { return j.o.Modules.Drop(p.Digest.String()) }
		j.add("compiled module "+p.Digest.String(), do, drop, "no image and no container needs its %d bytes, and it was last used on %s",
			p.Bytes, p.Used.UTC().Format(time.DateOnly))
	}
	for _, f := range j.seen.faults {
		j.add(f.Subject, "run check --repair with the server stopped", func(context.Context) error { return f.Remove() }, "%s", f.What)
	}
}

// seeModules looks at compiled modules, before it is looked at what needs them.
func (s *sight) seeModules(o Options) (kept []images.Prepared, err error) {
	if o.Modules == nil {
		return nil, nil
	}
	if s.faults, err = o.Modules.Faults(); err != nil {
		return nil, err
	}
	if kept, err = o.Modules.Kept(); err != nil {
		return nil, fmt.Errorf("look at compiled modules: %w", err)
	}
	return kept, nil
}
