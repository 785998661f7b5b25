package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Place is where a stream reads or writes an open file. The zero value is where the file stands.
type Place struct {
	mode   placeMode
	offset int64 // of the next byte, with atOffset
}

type placeMode uint8

const (
	asOpened placeMode = iota
	atOffset
	atEnd
)

// AtOffset is a place that moves on with what is read or written, apart from the file's own offset.
func AtOffset(offset int64) Place { return Place{mode: atOffset, offset: offset} }

// AtEnd is the end of the file, wherever that is at each write.
func AtEnd() Place { return Place{mode: atEnd} }

// Read reads once with do, where the place is the file's own; otherwise at the offset.
func (p *Place) Read(f *wasi.File, b wasi.Buffers, do func(wasi.Buffers) (int, error)) (int, error) {
	if n, done, err := p.move(f, b, f.ReadAt); done {
		return n, err
	}
	return do(b)
}

// Write is Read for writing.
func (p *Place) Write(f *wasi.File, b wasi.Buffers, do func(wasi.Buffers) (int, error)) (int, error) {
	if n, done, err := p.move(f, b, f.WriteAt); done {
		return n, err
	}
	if p.mode == atEnd && f.Kind() == wasi.KindFile && f.Flags()&wasi.Append == 0 {
		// It stays: WriteAt lifts it, and nothing else writes into a file that was opened by path.
		if err := f.SetFlags(f.Flags() | wasi.Append); err != nil {
			return 0, err
		}
	}
	return do(b)
}

func (p *Place) move(f *wasi.File, b wasi.Buffers, at func(wasi.Buffers, int64) (int, error)) (n int, done bool, err error) {
	if p.mode != atOffset {
		return 0, false, nil
	}
	n, err = at(b, p.offset)
	if err == unix.ESPIPE && f.Kind() != wasi.KindFile {
		p.mode = asOpened // a pipe or a terminal that was opened by its path
		return 0, false, nil
	}
	p.offset += int64(n)
	return n, true, err
}
