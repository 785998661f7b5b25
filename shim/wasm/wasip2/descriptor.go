package wasip2

import (
	"golang.org/x/sys/unix"

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

func (d *descriptor) drop() { d.node.release() }

// file is what is open, unless it is a directory: it has no contents (EBADF, as in wasmtime).
func (d *descriptor) file() (*wasi.File, error) {
	if d.node.file.Kind() == wasi.KindDirectory {
		return nil, unix.EBADF
	}
	return d.node.file, nil
}

// getDirectories gives the guest a new descriptor of each preopen.
func getDirectories(c *call, _ []uint64, out uint32) error {
	h := c.host
	at := c.putList(out, len(h.given), 12, 4)
	for i, d := range h.given {
		c.put32(at, h.handles.add(&descriptor{node: d.node.use(), flags: d.flags}, 0))
		c.putText(at+4, h.config.Preopens[i].Name)
		at += 12
	}
	return nil
}

func readViaStream(c *call, p []uint64, out uint32) error {
	d := get[*descriptor](c.host, p[0])
	if d.node.file.Kind() == wasi.KindDirectory {
		return unix.EISDIR
	}
	c.put32(out, c.host.handles.add(&input{node: d.node.use(), at: true, offset: int64(p[1])}, 0))
	return nil
}

func writeViaStream(c *call, p []uint64, out uint32) error {
	return c.writeVia(p[0], atOffset, int64(p[1]), out)
}

func appendViaStream(c *call, p []uint64, out uint32) error {
	return c.writeVia(p[0], atEnd, 0, out)
}

func (c *call) writeVia(handle uint64, mode outputMode, offset int64, out uint32) error {
	d := get[*descriptor](c.host, handle)
	if _, err := d.file(); err != nil {
		return err
	}
	c.put32(out, c.host.handles.add(newOutput(d.node, mode, offset), 0))
	return nil
}

// advices maps the specification's numbers to those of posix_fadvise.
var advices = [...]int{
	unix.FADV_NORMAL, unix.FADV_SEQUENTIAL, unix.FADV_RANDOM, unix.FADV_WILLNEED, unix.FADV_DONTNEED, unix.FADV_NOREUSE,
}

func advise(c *call, p []uint64, _ uint32) error {
	f, err := get[*descriptor](c.host, p[0]).file()
	advice := advices[discriminant(p[3], uint32(len(advices)))]
	if err != nil {
		return err
	}
	if int64(p[1]) < 0 || int64(p[2]) < 0 {
		return unix.EINVAL
	}
	return f.Advise(int64(p[1]), int64(p[2]), advice)
}

func syncData(c *call, p []uint64, _ uint32) error {
	return get[*descriptor](c.host, p[0]).node.file.Datasync()
}

func syncAll(c *call, p []uint64, _ uint32) error {
	return get[*descriptor](c.host, p[0]).node.file.Sync()
}

func getFlags(c *call, p []uint64, out uint32) error {
	c.put8(out, uint8(get[*descriptor](c.host, p[0]).flags))
	return nil
}

func getType(c *call, p []uint64, out uint32) error {
	c.put8(out, fileTypes[get[*descriptor](c.host, p[0]).node.file.Type()])
	return nil
}

func setSize(c *call, p []uint64, _ uint32) error {
	f, err := get[*descriptor](c.host, p[0]).file()
	if err != nil {
		return err
	}
	if int64(p[1]) < 0 {
		return unix.EINVAL
	}
	return f.SetSize(int64(p[1]))
}

// descriptorReadAt is descriptor.read. It tells the end by a flag.
func descriptorReadAt(c *call, p []uint64, out uint32) error {
	d := get[*descriptor](c.host, p[0])
	f, err := d.file()
	if err != nil {
		return err
	}
	if c.host.bytes == nil {
		c.host.bytes = make([]byte, maxRead)
	}
	b := c.host.bytes[:min(p[1], maxRead)]
	n, err := f.ReadAt(c.host.buffers[:0].Add(b), int64(p[2]))
	if err != nil {
		return err
	}
	c.putBytes(out, b[:n])
	c.putBool(out+8, n == 0)
	return nil
}

// descriptorWriteAt is descriptor.write.
func descriptorWriteAt(c *call, p []uint64, out uint32) error {
	d := get[*descriptor](c.host, p[0])
	b := c.list(p[1], p[2], 1, 1)
	f, err := d.file()
	if err != nil {
		return err
	}
	n, err := f.WriteAt(c.host.buffers[:0].Add(b), int64(p[3]))
	if err != nil {
		return err
	}
	c.put64(out, uint64(n))
	return nil
}

func isSameObject(c *call, p []uint64, _ uint32) error {
	var a, b unix.Stat_t
	one, other := get[*descriptor](c.host, p[0]), get[*descriptor](c.host, p[1])
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
