package wasip2

import (
	"errors"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// ErrClosed is the stream-error closed.
var ErrClosed = errors.New("stream is closed")

// IOError is the resource error of wasi:io.
type IOError struct{ Cause error }

// Drop implements canonical.Resource.
func (*IOError) Drop() {}

var errorFunctions = []canonical.Function{
	{Name: "[method]error.to-debug-string", Params: "ii", Answer: canonical.Pointer, Reallocs: true, Call: errorText},
	{Name: "[resource-drop]error", Params: "i", Call: canonical.Drop[*IOError]},
}

func errorText(c *canonical.Call, p []uint64, out uint32) error {
	c.PutText(out, canonical.Get[*IOError](c, p[0]).Cause.Error())
	return nil
}

// filesystemErrorCode is the error-code of a stream that works on a file.
func filesystemErrorCode(c *canonical.Call, p []uint64, out uint32) error {
	e := canonical.Get[*IOError](c, p[0])
	var connection streamFailure
	if errors.As(e.Cause, &connection) {
		c.Put8(out, 0)
		return nil
	}
	c.Put8(out, 1)
	c.Put8(out+1, uint8(codes.OfFile(e.Cause)))
	return nil
}
