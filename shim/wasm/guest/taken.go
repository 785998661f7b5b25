package guest

import "errors"

// Moment is when a guest takes its process over.
type Moment string

// Moments: where a faulty engine would give way first, while it reads the module, and later, to the
// machine code of the module. Between the two the process gives up making code.
const (
	Loading Moment = "loading"
	Running Moment = "running"
)

// Taken runs the guest face of a process that its guest has taken over: from the moment on, code is
// what runs there, with the arguments of the container's process, in place of the engine and the
// module. It is how the tests of the cage find out what such a guest can do; no program has it.
func Taken(args []string, at Moment, code func(args []string)) int {
	p := newProcess()
	taken := func() error {
		code(p.config.Args)
		return errors.New("the process was taken over")
	}
	switch at {
	case Loading:
		p.loading = taken
	case Running:
		p.calling = taken
	}
	return p.main(args)
}
