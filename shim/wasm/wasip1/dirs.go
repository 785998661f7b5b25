package wasip1

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

func fdReaddir(h *Host, mem api.Memory, p []uint64) error {
	d, err := h.table.directory(p[0], rightFdReaddir)
	if err != nil {
		return err
	}
	out, err := Record(mem, p[1], int(uint32(p[2])))
	if err != nil {
		return err
	}
	result, err := Record(mem, p[4], 4)
	if err != nil {
		return err
	}
	list, err := d.List(p[3])
	if err != nil {
		return err
	}
	used := 0
	for used < len(out) {
		entry, found, err := list.Entry()
		if err != nil && used == 0 {
			return err
		}
		if err != nil || !found {
			break
		}
		n, whole := putDirent(out[used:], entry)
		used += n
		if !whole {
			break // the guest asks for this one again
		}
		list.Advance()
	}
	put32(result, uint32(used))
	return nil
}

// putDirent writes an entry, as much of it as there is room for.
func putDirent(out []byte, e wasi.Entry) (int, bool) {
	var head [sizeDirent]byte
	put64(head[:], e.Next)
	put64(head[8:], e.Inode)
	put32(head[16:], uint32(len(e.Name)))
	head[20] = filetypes[e.Type]
	n := copy(out, head[:])
	n += copy(out[n:], e.Name)
	return n, n == len(head)+len(e.Name)
}
