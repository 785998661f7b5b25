package canonical

// MaxHandles bounds the table of one instance; the process's own RLIMIT_NOFILE may be lower.
const MaxHandles = 1 << 16

// MaxBytes bounds what the Sized resources of one instance hold together.
const MaxBytes = 96 << 20

// Resource is what a handle stands for.
type Resource interface {
	Drop() // releases what it holds
}

// Sized is a Resource that may hold much memory of the host's.
type Sized interface {
	Resource
	Held() int // in bytes, beyond what every resource has
}

// slot is a handle of the guest.
type slot struct {
	is       Resource // nil: free
	parent   uint32   // handle that it was made of, 0 = none
	children uint32
	size     int // of a Sized, when it was weighed last
}

// table holds the guest's handles by number; 0 is none.
type table struct {
	slots []slot
	free  []uint32
	bytes int // of all that are Sized
}

// Add gives the guest a handle. Its parent, 0 for none, cannot be dropped before it.
func (i *Instance) Add(r Resource, parent uint32) uint32 {
	t := &i.handles
	var index uint32
	switch n := len(t.free); {
	case n > 0:
		index, t.free = t.free[n-1], t.free[:n-1]
	case len(t.slots) > MaxHandles:
		r.Drop()
		Trapf("more than %d handles", MaxHandles)
	default:
		if len(t.slots) == 0 {
			t.slots = append(t.slots, slot{})
		}
		index = uint32(len(t.slots))
		t.slots = append(t.slots, slot{})
	}
	t.slots[index] = slot{is: r, parent: parent}
	if parent != 0 {
		t.slots[parent].children++
	}
	i.Weigh(index)
	return index
}

// Weigh bounds the memory of the host's that handles stand for, of which one is new or has another
// size. It may be none any more.
func (i *Instance) Weigh(index uint32) {
	t := &i.handles
	s := &t.slots[index]
	if sized, ok := s.is.(Sized); ok {
		size := sized.Held()
		t.bytes += size - s.size
		if s.size = size; t.bytes > MaxBytes {
			Trapf("handles that hold more than %d bytes", MaxBytes)
		}
	}
}

// Weigh is to be called when the Sized that a handle stands for has another size.
func (c *Call) Weigh(handle uint64) { c.Instance.Weigh(uint32(handle)) }

// Get returns what a handle stands for. T may be an interface.
func Get[T Resource](c *Call, handle uint64) T {
	t, index := &c.Instance.handles, uint32(handle)
	if uint64(index) >= uint64(len(t.slots)) || t.slots[index].is == nil {
		Trapf("unknown handle index %d", index)
	}
	r, ok := t.slots[index].is.(T)
	if !ok {
		Trapf("handle index %d used with the wrong type", index)
	}
	return r
}

// Take takes a handle from the guest, which has given it away, and returns what it stood for: that
// is the caller's to drop.
func Take[T Resource](c *Call, handle uint64) T { return take[T](c, handle, "given away") }

func take[T Resource](c *Call, handle uint64, how string) T {
	r := Get[T](c, handle)
	t, index := &c.Instance.handles, uint32(handle)
	s := t.slots[index]
	if s.children > 0 {
		Trapf("handle index %d %s: the resource has children", index, how)
	}
	if s.parent != 0 {
		t.slots[s.parent].children--
	}
	t.bytes -= s.size
	t.slots[index] = slot{}
	t.free = append(t.free, index)
	return r
}

// Drop is the function [resource-drop] of a type.
func Drop[T Resource](c *Call, p []uint64, _ uint32) error {
	take[T](c, p[0], "dropped").Drop()
	return nil
}

// clear drops everything.
func (t *table) clear() {
	for _, s := range t.slots {
		if s.is != nil {
			s.is.Drop()
		}
	}
	*t = table{}
}
