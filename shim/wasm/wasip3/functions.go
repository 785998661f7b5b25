package wasip3

import (
	"fmt"
	"sync"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// World is what a component gets as wasi:cli/command@0.3.
func World() canonical.World {
	return canonical.World{Name: "wasi:cli/command@0.3", Release: "0.3", Load: interfaces}
}

// interfaces are the functions of each interface, by its name without the version.
var interfaces = sync.OnceValue(func() map[string][]canonical.Function {
	return map[string][]canonical.Function{
		"wasi:cli/environment": {
			like("wasi:cli/environment", "get-environment", "get-environment"),
			like("wasi:cli/environment", "get-arguments", "get-arguments"),
			like("wasi:cli/environment", "initial-cwd", "get-initial-cwd"),
		},
		"wasi:cli/exit":            {like("wasi:cli/exit", "exit", "exit"), like("wasi:cli/exit", "exit-with-code", "exit-with-code")},
		"wasi:cli/stdin":           {{Name: "read-via-stream", Params: "i", Answer: canonical.Pointer, Call: readStdin}},
		"wasi:cli/stdout":          {{Name: "write-via-stream", Params: "i", Results: "i", Call: writeStdio(1)}},
		"wasi:cli/stderr":          {{Name: "write-via-stream", Params: "i", Results: "i", Call: writeStdio(2)}},
		"wasi:cli/types":           {},
		"wasi:cli/terminal-input":  {like("wasi:cli/terminal-input", "[resource-drop]terminal-input", "[resource-drop]terminal-input")},
		"wasi:cli/terminal-output": {like("wasi:cli/terminal-output", "[resource-drop]terminal-output", "[resource-drop]terminal-output")},
		"wasi:cli/terminal-stdin":  {like("wasi:cli/terminal-stdin", "get-terminal-stdin", "get-terminal-stdin")},
		"wasi:cli/terminal-stdout": {like("wasi:cli/terminal-stdout", "get-terminal-stdout", "get-terminal-stdout")},
		"wasi:cli/terminal-stderr": {like("wasi:cli/terminal-stderr", "get-terminal-stderr", "get-terminal-stderr")},

		"wasi:clocks/types":           {},
		"wasi:clocks/monotonic-clock": monotonicFunctions(),
		"wasi:clocks/system-clock": {
			like("wasi:clocks/wall-clock", "now", "now"),
			{Name: "get-resolution", Results: "I", Call: systemResolution},
		},

		"wasi:random/random":        {like("wasi:random/random", "get-random-bytes", "get-random-bytes"), like("wasi:random/random", "get-random-u64", "get-random-u64")},
		"wasi:random/insecure":      {like("wasi:random/insecure", "get-insecure-random-bytes", "get-insecure-random-bytes"), like("wasi:random/insecure", "get-insecure-random-u64", "get-insecure-random-u64")},
		"wasi:random/insecure-seed": {like("wasi:random/insecure-seed", "insecure-seed", "get-insecure-seed")},

		"wasi:filesystem/preopens": {like("wasi:filesystem/preopens", "get-directories", "get-directories")},
		"wasi:filesystem/types":    filesystemFunctions(),

		"wasi:sockets/types":          append(tcpFunctions(), udpFunctions()...),
		"wasi:sockets/ip-name-lookup": {{Name: "resolve-addresses", Params: "iii", Async: true, Answer: lookupCode(8, 4), Reallocs: true, Call: resolveAddresses}},
	}
})

// like is a function of WASI 0.2, by the name that 0.3 has for it.
func like(iface, name, as string) canonical.Function {
	f, err := canonical.Find(iface+"@0.2.0", name, wasip2.World())
	if err != nil {
		panic(fmt.Sprintf("WASI 0.3 is built on what WASI 0.2 lacks: %v", err)) // the program's own tables
	}
	is := *f
	is.Name = as
	return is
}
