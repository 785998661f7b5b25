package wasip2

// maxHandles bounds the table of one guest; the process's own RLIMIT_NOFILE may be lower.
const maxHandles = 1 << 16

// resource is what a handle stands for.
type resource interface {
	drop() // releases what it holds
}

// slot is a handle of the guest.
type slot struct {
	is       resource // nil: free
	parent   uint32   // handle that it was made of, 0 = none
	children uint32
}

// table holds the guest's handles by number; 0 is none.
type table struct {
	slots []slot
	free  []uint32
}

// add gives the guest a handle.
func (t *table) add(r resource, parent uint32) uint32 {
	var index uint32
	switch n := len(t.free); {
	case n > 0:
		index, t.free = t.free[n-1], t.free[:n-1]
	case len(t.slots) > maxHandles:
		r.drop()
		trapf("more than %d handles", maxHandles)
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
	return index
}

// get returns what a handle stands for.
func get[T resource](h *Host, handle uint64) T {
	index := uint32(handle)
	if uint64(index) >= uint64(len(h.handles.slots)) || h.handles.slots[index].is == nil {
		trapf("unknown handle index %d", index)
	}
	r, ok := h.handles.slots[index].is.(T)
	if !ok {
		trapf("handle index %d used with the wrong type", index)
	}
	return r
}

// drop is the function [resource-drop] of a type.
func drop[T resource](c *call, p []uint64, _ uint32) error {
	r := get[T](c.host, p[0])
	t, index := &c.host.handles, uint32(p[0])
	s := t.slots[index]
	if s.children > 0 {
		trapf("handle index %d dropped: the resource has children", index)
	}
	if s.parent != 0 {
		t.slots[s.parent].children--
	}
	t.slots[index] = slot{}
	t.free = append(t.free, index)
	r.drop()
	return nil
}

// clear drops everything.
func (t *table) clear() {
	for _, s := range t.slots {
		if s.is != nil {
			s.is.drop()
		}
	}
	*t = table{}
}
