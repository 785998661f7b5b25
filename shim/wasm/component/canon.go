package component

import "fmt"

// Operation is what a canonical definition does.
type Operation byte

// Operations, with the bytes of the binary format.
const (
	Lift                Operation = 0x00
	Lower               Operation = 0x01
	ResourceNew         Operation = 0x02
	ResourceDrop        Operation = 0x03
	ResourceRep         Operation = 0x04
	TaskCancel          Operation = 0x05
	SubtaskCancel       Operation = 0x06
	BackpressureSet     Operation = 0x08
	TaskReturn          Operation = 0x09
	ContextGet          Operation = 0x0a
	ContextSet          Operation = 0x0b
	ThreadYield         Operation = 0x0c
	SubtaskDrop         Operation = 0x0d
	StreamNew           Operation = 0x0e
	StreamRead          Operation = 0x0f
	StreamWrite         Operation = 0x10
	StreamCancelRead    Operation = 0x11
	StreamCancelWrite   Operation = 0x12
	StreamDropReadable  Operation = 0x13
	StreamDropWritable  Operation = 0x14
	FutureNew           Operation = 0x15
	FutureRead          Operation = 0x16
	FutureWrite         Operation = 0x17
	FutureCancelRead    Operation = 0x18
	FutureCancelWrite   Operation = 0x19
	FutureDropReadable  Operation = 0x1a
	FutureDropWritable  Operation = 0x1b
	ErrorContextNew     Operation = 0x1c
	ErrorContextMessage Operation = 0x1d
	ErrorContextDrop    Operation = 0x1e
	WaitableSetNew      Operation = 0x1f
	WaitableSetWait     Operation = 0x20
	WaitableSetPoll     Operation = 0x21
	WaitableSetDrop     Operation = 0x22
	WaitableJoin        Operation = 0x23
	BackpressureInc     Operation = 0x24
	BackpressureDec     Operation = 0x25
	ThreadIndex         Operation = 0x26
	ThreadNewIndirect   Operation = 0x27
	ThreadResumeLater   Operation = 0x28
	ThreadSuspend       Operation = 0x29
	ThreadSuspendResume Operation = 0x2a
	ThreadYieldResume   Operation = 0x2b
	ThreadSuspendUp     Operation = 0x2c
	ThreadYieldUp       Operation = 0x2d
	ThreadSpawnRef      Operation = 0x40
	ThreadSpawnIndirect Operation = 0x41
	ThreadParallelism   Operation = 0x42
)

// operation is the name of an operation, and what follows its byte: a letter for each part. t the
// index of a type, r a resource, o options, a whether it is asynchronous, c whether it can be
// cancelled, s whether it is shared, m a memory, v a core type of values, n a number, f a core type
// of functions, b a table, R a result.
type operation struct{ name, parts string }

// operations are all but Lift and Lower, which are like no other.
func operations() map[Operation]operation {
	return map[Operation]operation{
		ResourceNew: {"resource.new", "r"}, ResourceDrop: {"resource.drop", "r"}, ResourceRep: {"resource.rep", "r"},
		TaskCancel: {"task.cancel", ""}, SubtaskCancel: {"subtask.cancel", "a"}, BackpressureSet: {"backpressure.set", ""},
		TaskReturn: {"task.return", "Ro"}, ContextGet: {"context.get", "vn"}, ContextSet: {"context.set", "vn"},
		ThreadYield: {"thread.yield", "c"}, SubtaskDrop: {"subtask.drop", ""},
		StreamNew: {"stream.new", "t"}, StreamRead: {"stream.read", "to"}, StreamWrite: {"stream.write", "to"},
		StreamCancelRead: {"stream.cancel-read", "ta"}, StreamCancelWrite: {"stream.cancel-write", "ta"},
		StreamDropReadable: {"stream.drop-readable", "t"}, StreamDropWritable: {"stream.drop-writable", "t"},
		FutureNew: {"future.new", "t"}, FutureRead: {"future.read", "to"}, FutureWrite: {"future.write", "to"},
		FutureCancelRead: {"future.cancel-read", "ta"}, FutureCancelWrite: {"future.cancel-write", "ta"},
		FutureDropReadable: {"future.drop-readable", "t"}, FutureDropWritable: {"future.drop-writable", "t"},
		ErrorContextNew: {"error-context.new", "o"}, ErrorContextMessage: {"error-context.debug-message", "o"}, ErrorContextDrop: {"error-context.drop", ""},
		WaitableSetNew: {"waitable-set.new", ""}, WaitableSetWait: {"waitable-set.wait", "cm"}, WaitableSetPoll: {"waitable-set.poll", "cm"},
		WaitableSetDrop: {"waitable-set.drop", ""}, WaitableJoin: {"waitable.join", ""},
		BackpressureInc: {"backpressure.inc", ""}, BackpressureDec: {"backpressure.dec", ""},
		ThreadIndex: {"thread.index", ""}, ThreadNewIndirect: {"thread.new-indirect", "fb"}, ThreadResumeLater: {"thread.resume-later", ""},
		ThreadSuspend: {"thread.suspend", "c"}, ThreadSuspendResume: {"thread.suspend-then-resume", "c"},
		ThreadYieldResume: {"thread.yield-then-resume", "c"}, ThreadSuspendUp: {"thread.suspend-then-promote", "c"},
		ThreadYieldUp: {"thread.yield-then-promote", "c"}, ThreadSpawnRef: {"thread.spawn-ref", "sf"},
		ThreadSpawnIndirect: {"thread.spawn-indirect", "sfb"}, ThreadParallelism: {"thread.available-parallelism", "s"},
	}
}

// String is what the text format calls the operation.
func (o Operation) String() string {
	switch o {
	case Lift:
		return "lift"
	case Lower:
		return "lower"
	}
	if known, ok := operations()[o]; ok {
		return known.name
	}
	return fmt.Sprintf("operation 0x%02x", byte(o))
}

// Canon is a canonical definition: a function that is lifted or lowered, or one that the host has.
// Which fields count depends on Op.
type Canon struct {
	Op          Operation
	Offset      int
	Core        *CoreItem // that is lifted
	Func        *Func     // that is lowered
	Type        *Type     // of the lifted function; the resource, stream or future; the result of task.return
	CoreType    *CoreType // of the functions of threads
	Options     Options
	Memory      *CoreItem // of waitable sets
	Table       *CoreItem // of threads
	Value       byte      // core type, of context
	Slot        uint32    // of context
	Async       bool
	Cancellable bool
	Shared      bool
}

// Encoding is how strings are encoded.
type Encoding byte

// Encodings.
const (
	UTF8 Encoding = iota
	UTF16
	Latin1OrUTF16
)

// Options are canonical options.
type Options struct {
	Encoding                              Encoding
	Memory, Realloc, PostReturn, Callback *CoreItem // nil = not given
	Async                                 bool
	CoreType                              *CoreType // nil = not given
	GC                                    bool      // values of garbage collection
}

// canon reads a canonical definition, which defines a function or a core function.
func (r *reader) canon(s *scope) {
	c := &Canon{Offset: r.at()}
	c.Op = Operation(r.octet())
	s.of.Canons = append(s.of.Canons, c)
	switch c.Op {
	case Lift:
		r.expect(0, "sort of what is lifted")
		c.Core = at[CoreItem](r, s, SortCoreFunc)
		c.Options = r.options(s)
		c.Type = r.types(s).kindAt(Function)
		r.define(s, c.Offset, SortFunc, &Func{Offset: c.Offset, Type: c.Type, Canon: c})
		return
	case Lower:
		r.expect(0, "sort of what is lowered")
		c.Func = at[Func](r, s, SortFunc)
		c.Options = r.options(s)
	default:
		op, ok := r.d.operations[c.Op]
		if !ok {
			r.d.fail(c.Offset, "canonical operation 0x%02x is not known", byte(c.Op))
		}
		for _, part := range op.parts {
			r.canonPart(s, c, part)
		}
	}
	r.define(s, c.Offset, SortCoreFunc, &CoreItem{Offset: c.Offset, Canon: c})
}

// canonPart reads one part of what follows the byte of an operation.
func (r *reader) canonPart(s *scope, c *Canon, part rune) {
	switch part {
	case 't':
		c.Type = at[Type](r, s, SortType)
	case 'r':
		c.Type = r.types(s).resource()
	case 'R':
		c.Type = r.types(s).result()
	case 'o':
		c.Options = r.options(s)
	case 'a':
		c.Async = r.flag("asynchrony")
	case 'c':
		c.Cancellable = r.flag("cancellability")
	case 's':
		c.Shared = r.flag("sharing")
	case 'm':
		c.Memory = at[CoreItem](r, s, SortCoreMemory)
	case 'v':
		c.Value = r.types(s).coreValue()
	case 'n':
		c.Slot = r.number()
	case 'f':
		c.CoreType = at[CoreType](r, s, SortCoreType)
	case 'b':
		c.Table = at[CoreItem](r, s, SortCoreTable)
	}
}

// options reads canonical options, each of which may be given once.
func (r *reader) options(s *scope) Options {
	var o Options
	var seen [10]bool
	for range r.count("options") {
		before := r.at()
		b := r.octet()
		kind := b
		if b <= 2 {
			kind = 0 // they exclude each other
		}
		if int(kind) < len(seen) {
			if seen[kind] {
				r.d.fail(before, "canonical option 0x%02x is given twice", b)
			}
			seen[kind] = true
		}
		switch b {
		case 0, 1, 2:
			o.Encoding = Encoding(b)
		case 3:
			o.Memory = at[CoreItem](r, s, SortCoreMemory)
		case 4:
			o.Realloc = at[CoreItem](r, s, SortCoreFunc)
		case 5:
			o.PostReturn = at[CoreItem](r, s, SortCoreFunc)
		case 6:
			o.Async = true
		case 7:
			o.Callback = at[CoreItem](r, s, SortCoreFunc)
		case 8:
			o.CoreType = at[CoreType](r, s, SortCoreType)
		case 9:
			o.GC = true
		default:
			r.d.fail(before, "canonical option 0x%02x is not known", b)
		}
	}
	return o
}
