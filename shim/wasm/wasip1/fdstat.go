package wasip1

import (
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

func fdClose(h *Host, d *descriptor, _ api.Memory, p []uint64) error {
	h.table.remove(p[0])
	return d.file.Close()
}

// fdRenumber moves a file, with everything that belongs to it (also that it is a preopen or a
// standard stream), to another open descriptor.
func fdRenumber(h *Host, d *descriptor, _ api.Memory, p []uint64) error {
	old, err := h.table.get(p[1], 0)
	if err != nil || d == old {
		return err
	}
	h.table.open[uint32(p[1])] = d
	h.table.remove(p[0])
	old.file.Close()
	return nil
}

func fdFdstatGet(_ *Host, d *descriptor, mem api.Memory, p []uint64) error {
	out, err := Record(mem, p[1], sizeFdstat)
	if err != nil {
		return err
	}
	clear(out)
	out[0] = filetypes[d.file.Type()]
	put16(out[2:], putFlags(d.file.Flags()))
	put64(out[8:], uint64(d.base))
	put64(out[16:], uint64(d.inheriting))
	return nil
}

func fdFdstatSetFlags(_ *Host, d *descriptor, _ api.Memory, p []uint64) error {
	flags, err := getFlags(p[1])
	if err != nil {
		return err
	}
	return d.file.SetFlags(flags)
}

func fdFdstatSetRights(_ *Host, d *descriptor, _ api.Memory, p []uint64) error {
	base, inheriting := rights(p[1]), rights(p[2])
	if base&^d.base != 0 || inheriting&^d.inheriting != 0 {
		return errNotCapable
	}
	d.base, d.inheriting = base, inheriting
	return nil
}

// fdPrestatGet describes a preopen. Any other descriptor is EBADF: guests count upwards from 3
// until they meet it.
func fdPrestatGet(_ *Host, d *descriptor, mem api.Memory, p []uint64) error {
	if !d.preopen {
		return unix.EBADF
	}
	out, err := Record(mem, p[1], sizePrestat)
	if err != nil {
		return err
	}
	put32(out, prestatDirectory)
	put32(out[4:], uint32(len(d.name)))
	if d.file.Kind() != wasi.KindDirectory {
		put32(out, prestatListener)
	}
	return nil
}

func fdPrestatDirName(_ *Host, d *descriptor, mem api.Memory, p []uint64) error {
	if !d.preopen {
		return unix.EBADF
	}
	if d.file.Kind() != wasi.KindDirectory {
		return unix.ENOTDIR
	}
	if uint64(uint32(p[2])) < uint64(len(d.name)) {
		return unix.ENAMETOOLONG
	}
	out, err := Record(mem, p[1], len(d.name))
	if err != nil {
		return err
	}
	copy(out, d.name)
	return nil
}
