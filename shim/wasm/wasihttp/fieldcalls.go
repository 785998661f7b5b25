package wasihttp

import (
	"encoding/binary"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
)

// putHeaderError writes a header-error of WASI 0.2, which has none for fields that are too large.
func putHeaderError(c *canonical.Call, at uint32, err error) {
	refused, ok := err.(fields.Error)
	if !ok {
		canonical.Trapf("%v", err)
	}
	c.Put8(at, uint8(refused))
}

// name reads the name of a field, or more of it than any name has.
func name(c *canonical.Call, at, length uint64) string {
	b := c.Text(at, length)
	return string(b[:min(len(b), fields.MaxName+1)])
}

// value reads the value of a field, or more of it than fields can hold.
func value(c *canonical.Call, at, length uint64) string {
	b := c.List(at, length, 1, 1)
	return string(b[:min(len(b), fields.Max+1)])
}

func newFields(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(&fields.Fields{}, 0))
	return nil
}

func fieldsFromList(c *canonical.Call, p []uint64, out uint32) error {
	const size = 16
	list := c.List(p[0], p[1], size, 4)
	if len(list)/size > fields.MaxEntries {
		return fields.ErrFull
	}
	f := &fields.Fields{}
	for ; len(list) > 0; list = list[size:] {
		n, v := word(list, 0), word(list, 2)
		if err := f.Add(name(c, n, word(list, 1)), value(c, v, word(list, 3))); err != nil {
			return err
		}
	}
	c.Put32(out, c.Add(f, 0))
	return nil
}

// word reads the i-th 32 bits of a list's element.
func word(b []byte, i int) uint64 { return uint64(binary.LittleEndian.Uint32(b[4*i:])) }

func fieldsGet(c *canonical.Call, p []uint64, out uint32) error {
	f := canonical.Get[*fields.Fields](c, p[0])
	putValues(c, out, f.Get(name(c, p[1], p[2])))
	return nil
}

// putValues writes a list of field-values.
func putValues(c *canonical.Call, out uint32, values []string) {
	at := c.PutList(out, len(values), 8, 4)
	for i, v := range values {
		c.PutText(at+8*uint32(i), v)
	}
}

func fieldsHas(c *canonical.Call, p []uint64, _ uint32) error {
	f := canonical.Get[*fields.Fields](c, p[0])
	has := len(f.Get(name(c, p[1], p[2]))) > 0
	if p[0] = 0; has {
		p[0] = 1
	}
	return nil
}

func fieldsSet(c *canonical.Call, p []uint64, _ uint32) error {
	const size = 8
	f := canonical.Get[*fields.Fields](c, p[0])
	n, list := name(c, p[1], p[2]), c.List(p[3], p[4], size, 4)
	if len(list)/size > fields.MaxEntries {
		return fields.ErrFull
	}
	values, total := make([]string, 0, len(list)/size), 0
	for ; len(list) > 0; list = list[size:] {
		v := value(c, word(list, 0), word(list, 1))
		if total += len(v); total > fields.Max {
			return fields.ErrFull
		}
		values = append(values, v)
	}
	return weighed(c, p[0], f.Set(n, values))
}

func fieldsDelete(c *canonical.Call, p []uint64, _ uint32) error {
	f := canonical.Get[*fields.Fields](c, p[0])
	return weighed(c, p[0], f.Delete(name(c, p[1], p[2])))
}

// weighed weighs the fields of a handle that have changed, or have not because of err, which it
// returns.
func weighed(c *canonical.Call, handle uint64, err error) error {
	c.Weigh(handle)
	return err
}

// fieldsGetAndDelete is of WASI 0.3.
func fieldsGetAndDelete(c *canonical.Call, p []uint64, out uint32) error {
	f := canonical.Get[*fields.Fields](c, p[0])
	n := name(c, p[1], p[2])
	values := f.Get(n)
	if err := weighed(c, p[0], f.Delete(n)); err != nil {
		return err
	}
	putValues(c, out, values)
	return nil
}

func fieldsAppend(c *canonical.Call, p []uint64, _ uint32) error {
	f := canonical.Get[*fields.Fields](c, p[0])
	return weighed(c, p[0], f.Add(name(c, p[1], p[2]), value(c, p[3], p[4])))
}

func fieldsEntries(c *canonical.Call, p []uint64, out uint32) error {
	f := canonical.Get[*fields.Fields](c, p[0])
	at := c.PutList(out, f.Count(), 16, 4)
	f.Entries(func(name, value string) {
		c.PutText(at, name)
		c.PutText(at+8, value)
		at += 16
	})
	return nil
}

func fieldsClone(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(canonical.Get[*fields.Fields](c, p[0]).Clone(), 0))
	return nil
}
