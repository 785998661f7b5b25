package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

// The format of bbolt, version 2, as it is on machines with the least byte first.
const (
	magic         = 0xED0CDAED
	version       = 2
	headerSize    = 16 // id 8, flags 2, count 2, overflow 4
	metaSize      = 64 // magic, version, page size and flags 4 each; root, sequence, freelist, high water mark, transaction and sum 8 each
	metaSummed    = 56
	branchElement = 16 // position 4, key size 4, page 8
	leafElement   = 16 // flags 4, position 4, key size 4, value size 4
	bucketSize    = 16 // root 8, sequence 8
	leafBucket    = 1

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	noFreelist = ^uint64(0)
	maxDepth   = 64
)

type meta struct {
	pageSize             uint32
	root, freelist, high uint64
	transaction          uint64
}

// metaAt reads the meta page at an offset.
func metaAt(data []byte, offset int) (meta, bool) {
	if offset < 0 || offset+headerSize+metaSize > len(data) {
		return meta{}, false
	}
	p := data[offset+headerSize:][:metaSize]
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	sum := fnv.New64a()
	sum.Write(p[:metaSummed])
	if u32(p) != magic || u32(p[4:]) != version || u64(p[metaSummed:]) != sum.Sum64() {
		return meta{}, false
	}
	m := meta{pageSize: u32(p[8:]), root: u64(p[16:]), freelist: u64(p[32:]), high: u64(p[40:]), transaction: u64(p[48:])}
	return m, m.pageSize >= 1024 && m.pageSize <= 1<<20 && m.pageSize&(m.pageSize-1) == 0
}

// newest finds the meta page of the last transaction that was written whole.
func newest(data []byte) (meta, error) {
	first, ok := metaAt(data, 0)
	if ok {
		if second, ok := metaAt(data, int(first.pageSize)); ok && second.transaction > first.transaction {
			return second, nil
		}
		return first, nil
	}
	for size := 1024; size <= 64<<10; size *= 2 { // as bbolt looks for the second
		if second, ok := metaAt(data, size); ok && int(second.pageSize) == size {
			return second, nil
		}
	}
	return meta{}, errors.New("neither of its first two pages is what it should be")
}

// walk is one look at a file.
type walk struct {
	data []byte
	meta
	seen map[uint64]bool
}

func check(data []byte) error {
	m, err := newest(data)
	if err != nil {
		return err
	}
	if m.high < 4 || m.high > uint64(len(data))/uint64(m.pageSize) {
		return fmt.Errorf("it has %d bytes, and its %d pages need more", len(data), m.high)
	}
	w := walk{data: data, meta: m, seen: map[uint64]bool{0: true, 1: true}}
	if err := w.tree(m.root, nil, nil, 0); err != nil {
		return err
	}
	return w.free()
}

// page returns a page with those that follow it as one, and takes note of them.
func (w *walk) page(id uint64) (flags, count uint16, body []byte, err error) {
	if id < 2 || id >= w.high {
		return 0, 0, nil, fmt.Errorf("page %d is outside of it", id)
	}
	at := id * uint64(w.pageSize)
	p := w.data[at:]
	flags, count = binary.LittleEndian.Uint16(p[8:]), binary.LittleEndian.Uint16(p[10:])
	overflow := uint64(binary.LittleEndian.Uint32(p[12:]))
	if binary.LittleEndian.Uint64(p) != id || overflow >= w.high-id {
		return 0, 0, nil, fmt.Errorf("page %d is not what it should be", id)
	}
	for i := id; i <= id+overflow; i++ {
		if w.seen[i] {
			return 0, 0, nil, fmt.Errorf("page %d is there twice", i)
		}
		w.seen[i] = true
	}
	return flags, count, p[:(overflow+1)*uint64(w.pageSize)], nil
}

// tree reads what is below a page. Its keys are from least on, and below limit, unless these are
// nil.
func (w *walk) tree(id uint64, least, limit []byte, depth int) error {
	if depth > maxDepth {
		return errors.New("its pages are nested too deep")
	}
	flags, count, body, err := w.page(id)
	if err != nil {
		return err
	}
	switch flags {
	case leafPage:
		err = w.leaf(body, int(count), least, limit, depth)
	case branchPage:
		err = w.branch(body, int(count), least, limit, depth)
	default:
		err = fmt.Errorf("it has flags %#x", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// part cuts n bytes at an offset.
func part(body []byte, offset, n uint64) ([]byte, error) {
	if offset > uint64(len(body)) || n > uint64(len(body))-offset {
		return nil, errors.New("an element leads out of it")
	}
	return body[offset:][:n:n], nil
}

// order holds the keys of a page to their order.
type order struct {
	last, limit []byte
	some        bool
}

func (o *order) next(key []byte) error {
	less := bytes.Compare(o.last, key)
	if len(key) == 0 || less > 0 || o.some && less == 0 || o.limit != nil && bytes.Compare(key, o.limit) >= 0 {
		return errors.New("its keys are out of order")
	}
	o.last, o.some = key, true
	return nil
}

func (w *walk) branch(body []byte, count int, least, limit []byte, depth int) error {
	if count == 0 {
		return errors.New("it is empty")
	}
	keys, pages := make([][]byte, count), make([]uint64, count)
	o := order{last: least, limit: limit}
	for i := range count {
		at := uint64(headerSize + i*branchElement)
		e, err := part(body, at, branchElement)
		if err != nil {
			return err
		}
		position, size := uint64(binary.LittleEndian.Uint32(e)), uint64(binary.LittleEndian.Uint32(e[4:]))
		if keys[i], err = part(body, at+position, size); err != nil {
			return err
		}
		if err := o.next(keys[i]); err != nil {
			return err
		}
		pages[i] = binary.LittleEndian.Uint64(e[8:])
	}
	for i, page := range pages {
		end := limit
		if i+1 < count {
			end = keys[i+1]
		}
		if err := w.tree(page, keys[i], end, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) leaf(body []byte, count int, least, limit []byte, depth int) error {
	o := order{last: least, limit: limit}
	for i := range count {
		at := uint64(headerSize + i*leafElement)
		e, err := part(body, at, leafElement)
		if err != nil {
			return err
		}
		flags, position := binary.LittleEndian.Uint32(e), uint64(binary.LittleEndian.Uint32(e[4:]))
		keySize, valueSize := uint64(binary.LittleEndian.Uint32(e[8:])), uint64(binary.LittleEndian.Uint32(e[12:]))
		key, err := part(body, at+position, keySize)
		if err != nil {
			return err
		}
		value, err := part(body, at+position+keySize, valueSize)
		if err != nil {
			return err
		}
		if err := o.next(key); err != nil {
			return err
		}
		switch flags {
		case 0:
		case leafBucket:
			if err := w.bucket(value, depth); err != nil {
				return fmt.Errorf("bucket %q: %w", key, err)
			}
		default:
			return fmt.Errorf("an element has flags %#x", flags)
		}
	}
	return nil
}

// bucket reads a bucket within a bucket: it has pages of its own, or is a page in the value.
func (w *walk) bucket(value []byte, depth int) error {
	if len(value) < bucketSize {
		return errors.New("it is too short")
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return w.tree(root, nil, nil, depth+1)
	}
	body := value[bucketSize:]
	if len(body) < headerSize || depth > maxDepth || binary.LittleEndian.Uint16(body[8:]) != leafPage {
		return errors.New("its page is invalid")
	}
	return w.leaf(body, int(binary.LittleEndian.Uint16(body[10:])), nil, nil, depth+1)
}

// free reads the list of pages that are free: none may be in use.
func (w *walk) free() error {
	if w.freelist == noFreelist {
		return nil
	}
	flags, count, body, err := w.page(w.freelist)
	if err != nil || flags != freelistPage {
		return errors.Join(errors.New("its list of free pages is invalid"), err)
	}
	at, n := uint64(headerSize), uint64(count)
	if count == 0xFFFF {
		long, err := part(body, at, 8)
		if err != nil {
			return err
		}
		at, n = at+8, binary.LittleEndian.Uint64(long)
	}
	if n > uint64(len(body))/8 {
		return errors.New("its list of free pages is longer than its page")
	}
	list, err := part(body, at, n*8)
	if err != nil {
		return err
	}
	for ; len(list) > 0; list = list[8:] {
		id := binary.LittleEndian.Uint64(list)
		if id < 2 || id >= w.high || w.seen[id] {
			return fmt.Errorf("page %d is free and in use", id)
		}
		w.seen[id] = true
	}
	return nil
}
