package async

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// The built-ins that the specification does not have: those of a lowered component's own loop.
const (
	Next   = "task.next"   // (i32) -> i64: see next
	Finish = "task.finish" // () -> i32: see finish
)

// World has the canonical built-ins.
func World() canonical.World {
	return canonical.World{Name: "canonical built-ins", Make: builtIn}
}

// Name is the name of a built-in with what belongs to it: of a copy and its cancelling whether it
// is asynchronous, of all of a stream or future the element, of context the slot, of task.return
// the flat values.
type Name struct {
	Op      string // as the specification has it
	Element *Element
	Async   bool
	Slot    uint32
	Flat    string
}

// String is what builtIn reads.
func (n Name) String() string {
	async := ""
	if n.Async {
		async = ":a"
	}
	switch {
	case n.Element != nil:
		kind := "v"
		if n.Element.Number {
			kind = "n"
		}
		return fmt.Sprintf("%s:%d.%d.%s%s", n.Op, n.Element.Size, n.Element.Align, kind, async)
	case strings.HasPrefix(n.Op, "context."):
		return fmt.Sprintf("%s:%d", n.Op, n.Slot)
	case n.Op == "task.return":
		return n.Op + ":" + n.Flat
	}
	return n.Op + async
}

type call = func(*canonical.Call, []uint64, uint32) error

// builtIn makes the function of a name.
func builtIn(name string) (*canonical.Function, error) {
	f := canonical.Function{Name: name}
	op, rest, _ := strings.Cut(name, ":")
	set := func(params, results string, do call) { f.Params, f.Results, f.Call = params, results, do }
	switch op {
	case Next:
		set("i", "I", next)
	case Finish:
		set("", "i", finish)
	case "task.return":
		if strings.Trim(rest, "iI") == "" && len(rest) <= 16 {
			set(rest, "", taskReturn(len(rest)))
		}
	case "task.cancel":
		set("", "", taskCancel)
	case "context.get", "context.set":
		slot, err := strconv.ParseUint(rest, 10, 1)
		switch {
		case err != nil:
		case op == "context.get":
			set("", "i", contextGet(uint32(slot)))
		default:
			set("i", "", contextSet(uint32(slot)))
		}
	case "backpressure.inc":
		set("", "", backpressure(1))
	case "backpressure.dec":
		set("", "", backpressure(-1))
	case "thread.yield":
		set("", "i", yield)
	case "subtask.cancel":
		set("i", "i", subtaskCancel(rest == "a"))
	case "subtask.drop":
		set("i", "", subtaskDrop)
	case "error-context.new":
		set("ii", "i", errorContextNew)
	case "error-context.debug-message":
		set("ii", "", errorContextMessage)
		f.Reallocs = true
	case "error-context.drop":
		set("i", "", canonical.Drop[*errorContext])
	case "waitable-set.new":
		set("", "i", setNew)
	case "waitable-set.wait":
		set("ii", "i", setWait)
	case "waitable-set.poll":
		set("ii", "i", setPoll)
	case "waitable-set.drop":
		set("i", "", setDrop)
	case "waitable.join":
		set("ii", "", join)
	default:
		ofEnds(op, rest, set)
	}
	if f.Call == nil {
		return nil, fmt.Errorf("find canonical built-in %q: it does not exist: %w", name, errdefs.ErrNotFound)
	}
	return &f, nil
}

// ofEnds makes what a stream or future has.
func ofEnds(op, rest string, set func(params, results string, do call)) {
	of, what, _ := strings.Cut(op, ".")
	text, async, _ := strings.Cut(rest, ":")
	element, ok := parseElement(text)
	if !ok || of != "stream" && of != "future" {
		return
	}
	k := kind{element: element, future: of == "future"}
	k.writable = what == "write" || what == "cancel-write" || what == "drop-writable"
	move := "iii"
	if k.future {
		move = "ii"
	}
	switch what {
	case "new":
		set("", "I", newPair(element, k.future))
	case "read", "write":
		set(move, "i", k.move(async == "a"))
	case "cancel-read", "cancel-write":
		set("i", "i", k.cancel(async == "a"))
	case "drop-readable", "drop-writable":
		set("i", "", k.drop)
	}
}

// MaxElement bounds the size of the values of streams and futures, in bytes.
const MaxElement = 1 << 20

func parseElement(text string) (e Element, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 || parts[2] != "n" && parts[2] != "v" {
		return Element{}, false
	}
	size, err := strconv.ParseUint(parts[0], 10, 32)
	align, also := strconv.ParseUint(parts[1], 10, 32)
	if err != nil || also != nil || size > MaxElement || align != 1 && align != 2 && align != 4 && align != 8 {
		return Element{}, false
	}
	return Element{Size: uint32(size), Align: uint32(align), Number: parts[2] == "n"}, true
}
