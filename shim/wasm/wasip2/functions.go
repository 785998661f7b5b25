package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi/beneath"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// code8 is result<T, error-code> for a T of this size and alignment.
func code8(size, align uint32) canonical.Answer {
	return canonical.Result(max(size, 1), align, putCode)
}

// flow is result<T, stream-error>. A stream-error has 8 bytes, aligned to 4.
func flow(size, align uint32) canonical.Answer {
	return canonical.Result(max(size, 8), max(align, 4), putStreamError)
}

// Layouts that occur often.
var (
	fails = code8(0, 1) // result<_, error-code>
	flows = flow(0, 4)  // result<_, stream-error>
)

// interfaces are the functions of each interface, by its name without the version.
var interfaces = map[string][]canonical.Function{
	"wasi:cli/environment":          environmentFunctions,
	"wasi:cli/exit":                 exitFunctions,
	"wasi:cli/stdin":                {{Name: "get-stdin", Results: "i", Call: getStdin}},
	"wasi:cli/stdout":               {{Name: "get-stdout", Results: "i", Call: getStdout}},
	"wasi:cli/stderr":               {{Name: "get-stderr", Results: "i", Call: getStderr}},
	"wasi:cli/terminal-input":       {{Name: "[resource-drop]terminal-input", Params: "i", Call: canonical.Drop[*terminalInput]}},
	"wasi:cli/terminal-output":      {{Name: "[resource-drop]terminal-output", Params: "i", Call: canonical.Drop[*terminalOutput]}},
	"wasi:cli/terminal-stdin":       {{Name: "get-terminal-stdin", Params: "i", Answer: canonical.Optional, Call: getTerminalStdin}},
	"wasi:cli/terminal-stdout":      {{Name: "get-terminal-stdout", Params: "i", Answer: canonical.Optional, Call: getTerminalStdout}},
	"wasi:cli/terminal-stderr":      {{Name: "get-terminal-stderr", Params: "i", Answer: canonical.Optional, Call: getTerminalStderr}},
	"wasi:io/error":                 errorFunctions,
	"wasi:io/poll":                  pollFunctions,
	"wasi:io/streams":               streamFunctions,
	"wasi:clocks/monotonic-clock":   monotonicFunctions,
	"wasi:clocks/wall-clock":        wallFunctions,
	"wasi:random/random":            randomFunctions,
	"wasi:random/insecure":          insecureFunctions,
	"wasi:random/insecure-seed":     {{Name: "insecure-seed", Params: "i", Answer: canonical.Pair, Call: insecureSeed}},
	"wasi:filesystem/types":         filesystemFunctions,
	"wasi:filesystem/preopens":      {{Name: "get-directories", Params: "i", Answer: canonical.Pointer, Reallocs: true, Call: getDirectories}},
	"wasi:sockets/network":          networkFunctions,
	"wasi:sockets/instance-network": {{Name: "instance-network", Results: "i", Call: instanceNetwork}},
	"wasi:sockets/tcp":              tcpFunctions,
	"wasi:sockets/udp":              udpFunctions,
	"wasi:sockets/tcp-create-socket": {
		{Name: "create-tcp-socket", Params: "ii", Answer: code8(4, 4), Call: createTCP}},
	"wasi:sockets/udp-create-socket": {
		{Name: "create-udp-socket", Params: "ii", Answer: code8(4, 4), Call: createUDP}},
	"wasi:sockets/ip-name-lookup": lookupFunctions,
}

// World is what a component gets as wasi:cli/command@0.2.
func World() canonical.World {
	return canonical.World{Name: "wasi:cli/command@0.2", Interfaces: interfaces}
}

// putCode writes an error-code, which the sockets have their own numbers for.
func putCode(c *canonical.Call, at uint32, err error) {
	if code, own := err.(codes.Socket); own {
		c.Put8(at, uint8(code))
		return
	}
	c.Put8(at, uint8(codes.OfFile(err)))
}

// putStreamError writes a stream-error. A pipe whose other end has closed gives closed.
func putStreamError(c *canonical.Call, at uint32, err error) {
	if err == ErrClosed || err == unix.EPIPE {
		c.Put8(at, 1)
		return
	}
	c.Put8(at, 0)
	c.Put32(at+4, c.Add(&IOError{Cause: err}, 0))
}

// readPath copies a path out of guest memory. No path that the kernel takes is longer than
// beneath.MaxPath.
func readPath(c *canonical.Call, at, length uint64) (string, error) {
	b := c.Text(at, length)
	if len(b) > beneath.MaxPath {
		return "", unix.ENAMETOOLONG
	}
	return string(b), nil
}
