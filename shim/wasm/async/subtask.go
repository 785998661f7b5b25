package async

import (
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Operation is a canonical.Operation that says what it waits for. Embed Going for its Error.
type Operation interface {
	canonical.Operation
	Work
}

// Going is the Error of an operation, which nobody sees.
type Going struct{}

func (Going) Error() string { return "operation continues" }

// running is an operation that continues.
type running struct {
	Operation
	call canonical.Call
	out  uint32
	end  func(c *canonical.Call, err error)
	over bool // it has ended, or was cancelled
}

// cancel cancels the operation, once.
func (r *running) cancel() {
	if !r.over {
		r.over = true
		r.Cancel()
	}
}

func (r *running) step() bool {
	ended, err := r.Step(&r.call, r.out)
	if ended {
		r.over = true
		r.end(&r.call, err)
	}
	return ended
}

// subtask is the resource of that name.
type subtask struct {
	waitable
	tasks     *Tasks
	running   *running // nil when it has ended
	state     uint32
	delivered bool // the guest knows that it has ended
}

// Drop implements canonical.Resource.
func (s *subtask) Drop() {
	s.join(nil)
	if s.running != nil {
		s.tasks.remove(s.running)
		s.running.cancel()
	}
}

// Start implements canonical.Tasks.
func (t *Tasks) Start(c *canonical.Call, o canonical.Operation, out uint32, end func(c *canonical.Call, err error)) uint32 {
	s := &subtask{tasks: t, state: canonical.SubtaskStarted}
	s.running = &running{Operation: asOperation(o), call: *c, out: out, end: func(c *canonical.Call, err error) {
		end(c, err)
		s.resolve(canonical.SubtaskReturned)
	}}
	s.index = c.Add(s, 0)
	t.add(s.running)
	return s.index
}

//go:noinline
func asOperation(o canonical.Operation) Operation {
	known, ok := o.(Operation)
	if !ok {
		canonical.Trapf("%T says not what it waits for", o)
	}
	return known
}

// Wait implements canonical.Tasks.
func (t *Tasks) Wait(c *canonical.Call, o canonical.Operation, out uint32) error {
	if ended, err := o.Step(c, out); ended {
		return err
	}
	var failure error
	ended := false
	r := &running{Operation: asOperation(o), call: *c, out: out, end: func(_ *canonical.Call, err error) { ended, failure = true, err }}
	t.add(r)
	if err := t.until(c, func() bool { return ended }); err != nil {
		return err
	}
	return failure
}

// resolve ends the subtask.
func (s *subtask) resolve(state uint32) {
	s.running, s.state = nil, state
	s.pending = func() event {
		s.delivered = true
		return event{eventSubtask, s.index, s.state}
	}
}

// blocked is what a built-in returns for what continues.
const blocked = 0xffff_ffff

func subtaskCancel(async bool) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		s := canonical.Get[*subtask](c, p[0])
		switch {
		case s.delivered:
			canonical.Trapf("the subtask %d has ended", s.index)
		case s.set != nil && !async:
			canonical.Trapf("the subtask %d is in a waitable set", s.index)
		}
		if r := s.running; r != nil {
			s.tasks.remove(r)
			r.cancel()
			s.resolve(canonical.SubtaskCancelled)
		}
		p[0] = uint64(s.tell().payload)
		return nil
	}
}

func subtaskDrop(c *canonical.Call, p []uint64, _ uint32) error {
	if s := canonical.Get[*subtask](c, p[0]); !s.delivered {
		canonical.Trapf("the subtask %d is dropped before its end was told", s.index)
	}
	return canonical.Drop[*subtask](c, p, 0)
}

// Timer is an operation that ends at a time of the system's monotonic clock.
type Timer struct {
	Going
	System *wasi.System
	Due    int64
	rang   bool
}

// WaitsFor implements Work.
func (t *Timer) WaitsFor() (wasi.Subscription, bool) {
	t.rang = true // what waits is asked to continue when it is over, or the guest is to look around
	return wasi.Subscription{Due: t.Due}, true
}

// Step implements canonical.Operation.
func (t *Timer) Step(*canonical.Call, uint32) (bool, error) {
	return t.rang || t.System.Monotonic() >= t.Due, nil
}

// Cancel implements canonical.Operation.
func (*Timer) Cancel() {}
