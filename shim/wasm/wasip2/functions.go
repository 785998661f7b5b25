package wasip2

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero/api"
)

// function is a function of an interface.
type function struct {
	name            string
	params, results string // flat: a letter for each, i for i32, I for i64
	answer          answer // what the last parameter points to
	reallocs        bool   // it needs the canonical option realloc
	call            func(c *call, p []uint64, out uint32) error
}

// failure is how a function reports errors.
type failure uint8

const (
	traps     failure = iota // it has no errors
	failsCode                // result<…, error-code>
	failsFlow                // result<…, stream-error>
)

// answer is the layout of what a function returns in memory, in bytes. A function that returns
// nothing there has none. call gets the address of the payload.
type answer struct {
	size, align, payload uint32
	fails                failure
}

// Layouts that occur often.
var (
	pointer  = answer{size: 8, align: 4} // list or string
	pair     = answer{size: 16, align: 8}
	optional = answer{size: 8, align: 4} // option<own>
	fails    = code8(0, 1)               // result<_, error-code>
	flows    = flow(0, 4)                // result<_, stream-error>
)

// code8 is result<T, error-code> for a T of this size and alignment.
func code8(size, align uint32) answer { return result(max(size, 1), align, failsCode) }

// flow is result<T, stream-error>. A stream-error has 8 bytes, aligned to 4.
func flow(size, align uint32) answer { return result(max(size, 8), max(align, 4), failsFlow) }

func result(size, align uint32, fails failure) answer {
	total := (align + size + align - 1) / align * align
	return answer{size: total, align: align, payload: align, fails: fails}
}

// interfaces are the functions of each interface, by its name without the version.
var interfaces = map[string][]function{
	"wasi:cli/environment":          environmentFunctions,
	"wasi:cli/exit":                 exitFunctions,
	"wasi:cli/stdin":                {{name: "get-stdin", results: "i", call: getStdin}},
	"wasi:cli/stdout":               {{name: "get-stdout", results: "i", call: getStdout}},
	"wasi:cli/stderr":               {{name: "get-stderr", results: "i", call: getStderr}},
	"wasi:cli/terminal-input":       {{name: "[resource-drop]terminal-input", params: "i", call: drop[*terminalInput]}},
	"wasi:cli/terminal-output":      {{name: "[resource-drop]terminal-output", params: "i", call: drop[*terminalOutput]}},
	"wasi:cli/terminal-stdin":       {{name: "get-terminal-stdin", params: "i", answer: optional, call: getTerminalStdin}},
	"wasi:cli/terminal-stdout":      {{name: "get-terminal-stdout", params: "i", answer: optional, call: getTerminalStdout}},
	"wasi:cli/terminal-stderr":      {{name: "get-terminal-stderr", params: "i", answer: optional, call: getTerminalStderr}},
	"wasi:io/error":                 errorFunctions,
	"wasi:io/poll":                  pollFunctions,
	"wasi:io/streams":               streamFunctions,
	"wasi:clocks/monotonic-clock":   monotonicFunctions,
	"wasi:clocks/wall-clock":        wallFunctions,
	"wasi:random/random":            randomFunctions,
	"wasi:random/insecure":          insecureFunctions,
	"wasi:random/insecure-seed":     {{name: "insecure-seed", params: "i", answer: pair, call: insecureSeed}},
	"wasi:filesystem/types":         filesystemFunctions,
	"wasi:filesystem/preopens":      {{name: "get-directories", params: "i", answer: pointer, reallocs: true, call: getDirectories}},
	"wasi:sockets/network":          networkFunctions,
	"wasi:sockets/instance-network": {{name: "instance-network", results: "i", call: instanceNetwork}},
	"wasi:sockets/tcp":              tcpFunctions,
	"wasi:sockets/udp":              udpFunctions,
	"wasi:sockets/tcp-create-socket": {
		{name: "create-tcp-socket", params: "ii", answer: code8(4, 4), call: createTCP}},
	"wasi:sockets/udp-create-socket": {
		{name: "create-udp-socket", params: "ii", answer: code8(4, 4), call: createUDP}},
	"wasi:sockets/ip-name-lookup": lookupFunctions,
}

// Signature is how a lowered function is imported.
type Signature struct {
	Params, Results []api.ValueType
	Realloc         bool // it needs the canonical option realloc
}

// Lookup returns the signature of a function by the names a component has for it:
// "wasi:io/streams@0.2.12" and "[method]output-stream.write", for instance.
//
// # Errors
//
// ErrNotFound for what is not served, with a text that says why.
func Lookup(iface, name string) (Signature, error) {
	f, err := lookup(iface, name)
	if err != nil {
		return Signature{}, err
	}
	return Signature{Params: types(f.params), Results: types(f.results), Realloc: f.reallocs}, nil
}

func lookup(iface, name string) (*function, error) {
	bare, version, _ := strings.Cut(iface, "@")
	functions, known := interfaces[bare]
	if !known {
		return nil, fmt.Errorf("find interface %q: it is not part of wasi:cli/command@0.2: %w", iface, errdefs.ErrNotFound)
	}
	if !served(version) {
		return nil, fmt.Errorf("find interface %q: only its versions 0.2.x are served: %w", iface, errdefs.ErrNotFound)
	}
	for i := range functions {
		if functions[i].name == name {
			return &functions[i], nil
		}
	}
	return nil, fmt.Errorf("find function %q of interface %q: it has none of that name: %w", name, iface, errdefs.ErrNotFound)
}

// served reports whether a version is a 0.2.x. Release candidates had other functions.
func served(version string) bool {
	patch, ok := strings.CutPrefix(version, "0.2.")
	if !ok {
		return false
	}
	_, err := strconv.ParseUint(patch, 10, 32)
	return err == nil
}

// types are the value types of a flat signature.
func types(letters string) []api.ValueType {
	list := make([]api.ValueType, len(letters))
	for i := range letters {
		list[i] = api.ValueTypeI32
		if letters[i] == 'I' {
			list[i] = api.ValueTypeI64
		}
	}
	return list
}
