package wasip3

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// An error-code is a variant whose last case has an option<string>: 16 bytes, aligned to 4.
const (
	codeSize  = 16
	codeAlign = 4
)

// otherFile is the last case of wasi:filesystem's error-code.
const otherFile = 36

// fileCode is result<T, error-code> of wasi:filesystem for a T of this size and alignment.
func fileCode(size, align uint32) canonical.Answer {
	return canonical.Result(max(size, codeSize), max(align, codeAlign), putFileCode)
}

// putFileCode writes an error-code of wasi:filesystem. It has those of WASI 0.2 but would-block.
func putFileCode(c *canonical.Call, at uint32, err error) {
	code := uint8(codes.OfFile(err))
	switch {
	case code == uint8(codes.WouldBlockFile):
		code = otherFile
		c.Put8(at+codeAlign, 0) // there is no text
	case code > uint8(codes.WouldBlockFile):
		code--
	}
	c.Put8(at, code)
}

// Cases of wasi:cli's error-code.
const (
	cliIO uint8 = iota
	cliIllegalByteSequence
	cliPipe
)

// putCLICode writes an error-code of wasi:cli.
func putCLICode(c *canonical.Call, at uint32, err error) {
	code := cliIO
	switch err {
	case unix.EPIPE:
		code = cliPipe
	case unix.EILSEQ:
		code = cliIllegalByteSequence
	}
	c.Put8(at, code)
}

// outcome is a future<result<_, error-code>> that the host keeps.
type outcome struct {
	async.Promise
	element async.Element
	put     func(c *canonical.Call, at uint32, err error)
	payload uint32 // where the error-code is in the result
}

// fileOutcome is that of a stream of a file, cliOutcome of a standard stream.
func fileOutcome() *outcome {
	return &outcome{element: async.Element{Size: codeAlign + codeSize, Align: codeAlign}, put: putFileCode, payload: codeAlign}
}

func cliOutcome() *outcome {
	return &outcome{element: async.Element{Size: 2, Align: 1}, put: putCLICode, payload: 1}
}

// give gives the guest the future.
func (o *outcome) give(c *canonical.Call) uint32 { return o.Give(c, o.element) }

// keep tells how it ended, nil for well.
func (o *outcome) keep(err error) {
	o.Keep(func(c *canonical.Call, at uint32) {
		if err == nil {
			c.Put8(at, 0)
			return
		}
		c.Put8(at, 1)
		o.put(c, at+o.payload, err)
	})
}
