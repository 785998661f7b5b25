package wasip2

import (
	"errors"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// errClosed is the stream-error closed.
var errClosed = errors.New("stream is closed")

// ioError is the resource error of wasi:io.
type ioError struct{ cause error }

func (*ioError) drop() {}

var errorFunctions = []function{
	{name: "[method]error.to-debug-string", params: "ii", answer: pointer, reallocs: true, call: errorText},
	{name: "[resource-drop]error", params: "i", call: drop[*ioError]},
}

func errorText(c *call, p []uint64, out uint32) error {
	c.putText(out, get[*ioError](c.host, p[0]).cause.Error())
	return nil
}

// filesystemErrorCode is the error-code of a stream that works on a file.
func filesystemErrorCode(c *call, p []uint64, out uint32) error {
	e := get[*ioError](c.host, p[0])
	var connection streamFailure
	if errors.As(e.cause, &connection) {
		c.put8(out, 0)
		return nil
	}
	c.put8(out, 1)
	c.put8(out+1, uint8(codes.OfFile(e.cause)))
	return nil
}
