package canonical

import "encoding/binary"

// Operation is what a function does that takes time: Function.Call returns it in place of an error.
// It is asked to continue until it ends.
type Operation interface {
	error

	// Step continues as far as it can without waiting, and tells whether it has ended. out is as in
	// Function.Call, and so is the error.
	Step(c *Call, out uint32) (ended bool, err error)
	// Cancel ends it before its end: nothing of it is told to the guest.
	Cancel()
}

// Tasks continues operations.
type Tasks interface {
	// Start continues an operation after the call, and calls end when it has ended. It returns the
	// handle of a subtask that tells of that.
	Start(c *Call, o Operation, out uint32, end func(c *Call, err error)) uint32
	// Wait returns when an operation has ended, with its error.
	Wait(c *Call, o Operation, out uint32) error
	// Close ends what continues, and tells the guest of nothing more: its memory may be another's
	// soon.
	Close()
}

// States of a subtask, and how the state and its handle are put together.
const (
	SubtaskStarted   = 1
	SubtaskReturned  = 2
	SubtaskCancelled = 4 // before it has returned

	SubtaskShift = 4
)

// callAsync is Call of what is lowered asynchronously.
func (b *binding) callAsync(c *Call, stack []uint64) {
	i, n := c.Instance, len(b.flat())
	p := i.flat[:]
	next := n
	if b.spill != nil {
		b.spill.load(c, uint32(stack[0]), p)
		next = 1
	} else {
		copy(p, stack[:n])
	}
	var out uint32
	switch {
	case b.Answer.Size > 0:
		out = b.pointer(c, stack[next], b.Answer.Size, b.Answer.Align)
	case b.Results != "":
		out = b.pointer(c, stack[next], b.Stored, b.Stored)
	}
	end := func(c *Call, err error) {
		if b.Results != "" {
			store(c, out, b.Stored, p[0])
		}
		b.answer(c, out, err)
	}
	err := b.Function.Call(c, p, out+b.Answer.Payload)
	o, goes := err.(Operation)
	if goes && i.Ended() != nil {
		o.Cancel()
	}
	i.mayGoOn()
	if goes {
		var ended bool
		if ended, err = o.Step(c, out+b.Answer.Payload); !ended {
			stack[0] = SubtaskStarted | uint64(i.Tasks.Start(c, o, out+b.Answer.Payload, end))<<SubtaskShift
			return
		}
	}
	end(c, err)
	stack[0] = SubtaskReturned
}

// store writes a flat value.
func store(c *Call, at, size uint32, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	c.Memory.Write(at, b[:size])
}
