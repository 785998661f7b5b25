package wasihttp

import (
	"encoding/binary"
	"errors"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// errFieldsFull is a guest's whose fields are larger than maxFields.
var errFieldsFull = errors.New("the fields are too large")

// maxEntries bounds the lists that a guest hands in: more of them do not fit into maxFields.
const maxEntries = maxFields/valueCost + 1

// changed answers a change of fields: a header-error for what the fields refuse.
func changed(err error) error {
	if err == errFieldsFull {
		canonical.Trapf("fields of more than %d bytes", maxFields)
	}
	return err
}

// putHeaderError writes a header-error.
func putHeaderError(c *canonical.Call, at uint32, err error) {
	refused, ok := err.(headerError)
	if !ok {
		canonical.Trapf("%v", err)
	}
	c.Put8(at, uint8(refused))
}

// name reads the name of a field, or more of it than any name has.
func name(c *canonical.Call, at, length uint64) string {
	b := c.Text(at, length)
	return string(b[:min(len(b), maxName+1)])
}

// value reads the value of a field.
func value(c *canonical.Call, at, length uint64) string {
	b := c.List(at, length, 1, 1)
	if len(b) > maxFields {
		_ = changed(errFieldsFull)
	}
	return string(b)
}

func newFields(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(&fields{}, 0))
	return nil
}

func fieldsFromList(c *canonical.Call, p []uint64, out uint32) error {
	const size = 16
	list := c.List(p[0], p[1], size, 4)
	if len(list)/size > maxEntries {
		return changed(errFieldsFull)
	}
	f := &fields{}
	for ; len(list) > 0; list = list[size:] {
		n, v := word(list, 0), word(list, 2)
		if err := f.add(name(c, n, word(list, 1)), value(c, v, word(list, 3))); err != nil {
			return changed(err)
		}
	}
	c.Put32(out, c.Add(f, 0))
	return nil
}

// word reads the i-th 32 bits of a list's element.
func word(b []byte, i int) uint64 { return uint64(binary.LittleEndian.Uint32(b[4*i:])) }

func fieldsGet(c *canonical.Call, p []uint64, out uint32) error {
	f := canonical.Get[*fields](c, p[0])
	values := f.get(name(c, p[1], p[2]))
	at := c.PutList(out, len(values), 8, 4)
	for i, v := range values {
		c.PutText(at+8*uint32(i), v)
	}
	return nil
}

func fieldsHas(c *canonical.Call, p []uint64, _ uint32) error {
	f := canonical.Get[*fields](c, p[0])
	has := len(f.get(name(c, p[1], p[2]))) > 0
	if p[0] = 0; has {
		p[0] = 1
	}
	return nil
}

func fieldsSet(c *canonical.Call, p []uint64, _ uint32) error {
	const size = 8
	f := canonical.Get[*fields](c, p[0])
	n, list := name(c, p[1], p[2]), c.List(p[3], p[4], size, 4)
	if len(list)/size > maxEntries {
		return changed(errFieldsFull)
	}
	values, total := make([]string, 0, len(list)/size), 0
	for ; len(list) > 0; list = list[size:] {
		v := value(c, word(list, 0), word(list, 1))
		if total += len(v); total > maxFields {
			return changed(errFieldsFull)
		}
		values = append(values, v)
	}
	return changed(f.set(n, values))
}

func fieldsDelete(c *canonical.Call, p []uint64, _ uint32) error {
	f := canonical.Get[*fields](c, p[0])
	return changed(f.delete(name(c, p[1], p[2])))
}

func fieldsAppend(c *canonical.Call, p []uint64, _ uint32) error {
	f := canonical.Get[*fields](c, p[0])
	return changed(f.add(name(c, p[1], p[2]), value(c, p[3], p[4])))
}

func fieldsEntries(c *canonical.Call, p []uint64, out uint32) error {
	f := canonical.Get[*fields](c, p[0])
	at := c.PutList(out, f.count(), 16, 4)
	for _, e := range f.list {
		for _, v := range e.values {
			c.PutText(at, e.name)
			c.PutText(at+8, v)
			at += 16
		}
	}
	return nil
}

func fieldsClone(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(canonical.Get[*fields](c, p[0]).clone(), 0))
	return nil
}
