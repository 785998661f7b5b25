package wasip2

import (
	"strings"

	"github.com/tetratelabs/wazero/sys"
)

var environmentFunctions = []function{
	{name: "get-environment", params: "i", answer: pointer, reallocs: true, call: getEnvironment},
	{name: "get-arguments", params: "i", answer: pointer, reallocs: true, call: getArguments},
	{name: "initial-cwd", params: "i", answer: answer{size: 12, align: 4}, reallocs: true, call: initialCwd},
}

var exitFunctions = []function{
	{name: "exit", params: "i", call: exit},
	{name: "exit-with-code", params: "i", call: exitWithCode},
}

func getEnvironment(c *call, _ []uint64, out uint32) error {
	at := c.putList(out, len(c.host.config.Env), 16, 4)
	for _, v := range c.host.config.Env {
		name, value, _ := strings.Cut(v, "=")
		c.putText(at, name)
		c.putText(at+8, value)
		at += 16
	}
	return nil
}

func getArguments(c *call, _ []uint64, out uint32) error {
	at := c.putList(out, len(c.host.config.Args), 8, 4)
	for _, a := range c.host.config.Args {
		c.putText(at, a)
		at += 8
	}
	return nil
}

func initialCwd(c *call, _ []uint64, out uint32) error {
	dir, known := c.host.variable("PWD")
	c.putBool(out, known)
	if known {
		c.putText(out+4, dir)
	}
	return nil
}

func exit(c *call, p []uint64, _ uint32) error {
	c.exit(discriminant(p[0], 2)) // an error is 1
	return nil
}

func exitWithCode(c *call, p []uint64, _ uint32) error {
	c.exit(uint32(uint8(p[0])))
	return nil
}

// exit ends the guest with an exit code.
func (c *call) exit(code uint32) {
	_ = c.mod.CloseWithExitCode(c.ctx, code)
	// Nothing of the guest may run after this: compilers put a trap behind the call.
	panic(sys.NewExitError(code))
}

// getStdin gives the guest another stream of its standard input.
func getStdin(c *call, p []uint64, _ uint32) error {
	p[0] = uint64(c.host.handles.add(&input{node: c.host.stdio[0].use()}, 0))
	return nil
}

func getStdout(c *call, p []uint64, _ uint32) error {
	p[0] = uint64(c.host.handles.add(newOutput(c.host.stdio[1], asOpened, 0), 0))
	return nil
}

func getStderr(c *call, p []uint64, _ uint32) error {
	p[0] = uint64(c.host.handles.add(newOutput(c.host.stdio[2], asOpened, 0), 0))
	return nil
}

// terminalInput and terminalOutput are the resources of these names. They can do nothing yet: that
// there is one says that the stream is a terminal.
type (
	terminalInput  struct{}
	terminalOutput struct{}
)

func (*terminalInput) drop()  {}
func (*terminalOutput) drop() {}

func getTerminalStdin(c *call, _ []uint64, out uint32) error {
	return c.putTerminal(out, 0, &terminalInput{})
}

func getTerminalStdout(c *call, _ []uint64, out uint32) error {
	return c.putTerminal(out, 1, &terminalOutput{})
}

func getTerminalStderr(c *call, _ []uint64, out uint32) error {
	return c.putTerminal(out, 2, &terminalOutput{})
}

// putTerminal writes the terminal that a standard stream is, if it is one.
func (c *call) putTerminal(out uint32, stream int, r resource) error {
	if c.host.stdio[stream].file.Terminal() {
		c.putOption(out, r)
		return nil
	}
	c.put8(out, 0)
	return nil
}
