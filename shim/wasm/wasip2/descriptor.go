package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// descriptorFlags are the specification's descriptor-flags.
type descriptorFlags uint8

const (
	descriptorRead descriptorFlags = 1 << iota
	descriptorWrite
	descriptorFileSync
	descriptorDataSync
	descriptorReadSync
	descriptorMutate

	descriptorAll = descriptorMutate<<1 - 1
)

// descriptor is the resource of that name: an open file or directory.
type descriptor struct {
	node  *node
	flags descriptorFlags
}

func (d *descriptor) Drop() { d.node.release() }

// file is what is open, unless it is a directory: it has no contents (EBADF, as in wasmtime).
func (d *descriptor) file() (*wasi.File, error) {
	if d.node.file.Kind() == wasi.KindDirectory {
		return nil, unix.EBADF
	}
	return d.node.file, nil
}

// getDirectories gives the guest a new descriptor of each preopen.
func getDirectories(c *canonical.Call, _ []uint64, out uint32) error {
	given, err := Of(c).preopens()
	if err != nil {
		return err
	}
	at := c.PutList(out, len(given), 12, 4)
	for n, d := range given {
		c.Put32(at, c.Add(&descriptor{node: d.node.use(), flags: d.flags}, 0))
		c.PutText(at+4, Of(c).host.config.Preopens[n].Name)
		at += 12
	}
	return nil
}

func readViaStream(c *canonical.Call, p []uint64, out uint32) error {
	d := canonical.Get[*descriptor](c, p[0])
	if d.node.file.Kind() == wasi.KindDirectory {
		return unix.EISDIR
	}
	c.Put32(out, c.Add(&input{node: d.node.use(), place: AtOffset(int64(p[1]))}, 0))
	return nil
}

func writeViaStream(c *canonical.Call, p []uint64, out uint32) error {
	return writeVia(c, p[0], AtOffset(int64(p[1])), out)
}

func appendViaStream(c *canonical.Call, p []uint64, out uint32) error {
	return writeVia(c, p[0], AtEnd(), out)
}

func writeVia(c *canonical.Call, handle uint64, place Place, out uint32) error {
	d := canonical.Get[*descriptor](c, handle)
	if _, err := d.file(); err != nil {
		return err
	}
	c.Put32(out, c.Add(NewOutputStream(newOutput(d.node, place)), 0))
	return nil
}

// advices maps the specification's numbers to those of posix_fadvise.
var advices = [...]int{
	unix.FADV_NORMAL, unix.FADV_SEQUENTIAL, unix.FADV_RANDOM, unix.FADV_WILLNEED, unix.FADV_DONTNEED, unix.FADV_NOREUSE,
}

func advise(c *canonical.Call, p []uint64, _ uint32) error {
	f, err := canonical.Get[*descriptor](c, p[0]).file()
	advice := advices[canonical.Discriminant(p[3], uint32(len(advices)))]
	if err != nil {
		return err
	}
	if int64(p[1]) < 0 || int64(p[2]) < 0 {
		return unix.EINVAL
	}
	return f.Advise(int64(p[1]), int64(p[2]), advice)
}

func syncData(c *canonical.Call, p []uint64, _ uint32) error {
	return canonical.Get[*descriptor](c, p[0]).node.file.Datasync()
}

func syncAll(c *canonical.Call, p []uint64, _ uint32) error {
	return canonical.Get[*descriptor](c, p[0]).node.file.Sync()
}

func getFlags(c *canonical.Call, p []uint64, out uint32) error {
	c.Put8(out, uint8(canonical.Get[*descriptor](c, p[0]).flags))
	return nil
}

func getType(c *canonical.Call, p []uint64, out uint32) error {
	c.Put8(out, fileTypes[canonical.Get[*descriptor](c, p[0]).node.file.Type()])
	return nil
}

func setSize(c *canonical.Call, p []uint64, _ uint32) error {
	f, err := canonical.Get[*descriptor](c, p[0]).file()
	if err != nil {
		return err
	}
	if int64(p[1]) < 0 {
		return unix.EINVAL
	}
	return f.SetSize(int64(p[1]))
}

// descriptorReadAt is descriptor.read. It tells the end by a flag.
func descriptorReadAt(c *canonical.Call, p []uint64, out uint32) error {
	d := canonical.Get[*descriptor](c, p[0])
	f, err := d.file()
	if err != nil {
		return err
	}
	b := Of(c).scratch(p[1])
	n, err := f.ReadAt(Of(c).buffers[:0].Add(b), int64(p[2]))
	if err != nil {
		return err
	}
	c.PutBytes(out, b[:n])
	c.PutBool(out+8, n == 0)
	return nil
}

// descriptorWriteAt is descriptor.write.
func descriptorWriteAt(c *canonical.Call, p []uint64, out uint32) error {
	d := canonical.Get[*descriptor](c, p[0])
	b := c.List(p[1], p[2], 1, 1)
	f, err := d.file()
	if err != nil {
		return err
	}
	n, err := f.WriteAt(Of(c).buffers[:0].Add(b), int64(p[3]))
	if err != nil {
		return err
	}
	c.Put64(out, uint64(n))
	return nil
}

func isSameObject(c *canonical.Call, p []uint64, _ uint32) error {
	var a, b unix.Stat_t
	one, other := canonical.Get[*descriptor](c, p[0]), canonical.Get[*descriptor](c, p[1])
	if err := one.node.file.Stat(&a); err != nil {
		return err
	}
	if err := other.node.file.Stat(&b); err != nil {
		return err
	}
	p[0] = 0
	if a.Dev == b.Dev && a.Ino == b.Ino {
		p[0] = 1
	}
	return nil
}
