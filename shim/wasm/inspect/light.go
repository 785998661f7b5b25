package inspect

import (
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// Light says which of the steps that make a start light apply. Empty for what is not compiled.
type Light struct {
	Image Step `json:"memoryImage"` // data segments as a file that guests map
	Bare  Step `json:"startModule"` // functions without bodies, the machine code from the cache
	Share Step `json:"sharedCode"`  // one copy of the machine code for all guests
}

// Step is one of them.
type Step struct {
	State string `json:"state,omitempty"` // one of the constants
	Why   string `json:"why,omitempty"`   // it is not taken
}

// States of a step.
const (
	Taken    = "taken"
	NotTaken = "not taken"
	Unknown  = "not known before it is compiled"
)

func notTaken(why string) Step { return Step{State: NotTaken, Why: why} }

// expected returns the steps as they are known before the module is compiled.
func (r *Report) expected() Light {
	l := Light{Image: Step{State: Unknown}, Bare: Step{State: Unknown}, Share: Step{State: Unknown}}
	if r.unfit {
		return Light{}
	}
	if why := r.obstacles.Image; why != "" {
		l.Image = notTaken(why)
	}
	if why := r.obstacles.Bare; why != "" {
		l.Bare, l.Share = notTaken(why), notTaken(needsBare)
	}
	return l
}

const needsBare = "it needs the start module"

// known is what an entry says of the steps.
func known(load compile.Load, f compile.Obstacles) Light {
	l := Light{Image: Step{State: Taken}, Bare: Step{State: Taken}, Share: Step{State: Taken}}
	if load.ImageSize == 0 {
		l.Image = notTaken(either(f.Image, "the code uses its data segments (memory.init or data.drop)"))
	}
	if !load.Bare {
		l.Bare = notTaken(either(f.Bare, "the engine has no machine code for it here"))
	}
	switch {
	case load.CodeSize > 0:
	case !load.Bare:
		l.Share = notTaken(needsBare)
	default:
		l.Share = notTaken(fmt.Sprintf("the machine code takes less than %d KiB", compile.Worth>>10))
	}
	return l
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
