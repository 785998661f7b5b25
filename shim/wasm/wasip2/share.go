package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Shared is a use of an open file that resources of the guest have too.
type Shared struct{ node *node }

// File is the open file.
func (s Shared) File() *wasi.File { return s.node.file }

// Release ends the use. The last one closes the file.
func (s Shared) Release() { s.node.release() }

// ShareDescriptor is another use of what a descriptor of the guest's stands for.
func ShareDescriptor(c *canonical.Call, handle uint64) Shared {
	return Shared{canonical.Get[*descriptor](c, handle).node.use()}
}

// ShareStdio is another use of a standard stream, by its number.
func (i *Instance) ShareStdio(number int) (Shared, error) {
	stream, err := i.stream(number)
	if err != nil {
		return Shared{}, err
	}
	return Shared{stream.use()}, nil
}

// Stat fills in st of a descriptor.
func Stat(c *canonical.Call, p []uint64, st *unix.Stat_t) error {
	return canonical.Get[*descriptor](c, p[0]).node.file.Stat(st)
}

// StatAt reads a descriptor, path-flags and a path from p, and fills in st of what they name.
func StatAt(c *canonical.Call, p []uint64, st *unix.Stat_t) error { return lookUp(c, p, st) }

// OpenAt is open-at with the flags of WASI 0.3: what is created can be written to, and that what is
// below a directory may be changed is told only if it was asked for.
func OpenAt(c *canonical.Call, p []uint64, out uint32) error {
	asked, create := descriptorFlags(p[5]), uint32(p[4])&openCreate != 0
	if create && asked&descriptorWrite == 0 {
		p[5] |= uint64(descriptorRead | descriptorWrite)
	}
	if err := openAt(c, p, out); err != nil {
		return err
	}
	handle, _ := c.Memory.ReadUint32Le(out)
	canonical.Get[*descriptor](c, uint64(handle)).flags &^= descriptorMutate &^ asked
	return nil
}

// Entries are those of a directory.
type Entries struct{ entries }

// NewEntries are those of what a descriptor of the guest's stands for. Drop releases them.
func NewEntries(c *canonical.Call, handle uint64) (*Entries, error) {
	d := canonical.Get[*descriptor](c, handle)
	if _, err := d.node.file.AsDir(); err != nil {
		return nil, err
	}
	return &Entries{entries{node: d.node.use()}}, nil
}

// Next is the next entry. The specification leaves out "." and "..".
func (e *Entries) Next() (filetype wasi.Type, name []byte, found bool, err error) { return e.next() }
