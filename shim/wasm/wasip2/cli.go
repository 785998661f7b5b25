package wasip2

import (
	"strings"

	"github.com/tetratelabs/wazero/sys"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

var environmentFunctions = []canonical.Function{
	{Name: "get-environment", Params: "i", Answer: canonical.Pointer, Reallocs: true, Call: getEnvironment},
	{Name: "get-arguments", Params: "i", Answer: canonical.Pointer, Reallocs: true, Call: getArguments},
	{Name: "initial-cwd", Params: "i", Answer: canonical.Answer{Size: 12, Align: 4}, Reallocs: true, Call: initialCwd},
}

var exitFunctions = []canonical.Function{
	{Name: "exit", Params: "i", Call: exit},
	{Name: "exit-with-code", Params: "i", Call: exitWithCode},
}

func getEnvironment(c *canonical.Call, _ []uint64, out uint32) error {
	at := c.PutList(out, len(Of(c).host.config.Env), 16, 4)
	for _, v := range Of(c).host.config.Env {
		name, value, _ := strings.Cut(v, "=")
		c.PutText(at, name)
		c.PutText(at+8, value)
		at += 16
	}
	return nil
}

func getArguments(c *canonical.Call, _ []uint64, out uint32) error {
	at := c.PutList(out, len(Of(c).host.config.Args), 8, 4)
	for _, a := range Of(c).host.config.Args {
		c.PutText(at, a)
		at += 8
	}
	return nil
}

func initialCwd(c *canonical.Call, _ []uint64, out uint32) error {
	dir, known := Of(c).host.variable("PWD")
	c.PutBool(out, known)
	if known {
		c.PutText(out+4, dir)
	}
	return nil
}

func exit(c *canonical.Call, p []uint64, _ uint32) error {
	exitWith(c, canonical.Discriminant(p[0], 2)) // an error is 1
	return nil
}

func exitWithCode(c *canonical.Call, p []uint64, _ uint32) error {
	exitWith(c, uint32(uint8(p[0])))
	return nil
}

// exit ends the guest with an exit code.
func exitWith(c *canonical.Call, code uint32) {
	_ = c.Module.CloseWithExitCode(c.Context, code)
	// Nothing of the guest may run after this: compilers put a trap behind the call.
	panic(sys.NewExitError(code))
}

// getStdin gives the guest another stream of its standard input.
func getStdin(c *canonical.Call, p []uint64, _ uint32) error {
	stream, err := Of(c).stream(0)
	if err != nil {
		return err
	}
	p[0] = uint64(c.Add(&input{node: stream.use()}, 0))
	return nil
}

func getStdout(c *canonical.Call, p []uint64, _ uint32) error { return getOutput(c, p, 1) }
func getStderr(c *canonical.Call, p []uint64, _ uint32) error { return getOutput(c, p, 2) }

func getOutput(c *canonical.Call, p []uint64, number int) error {
	stream, err := Of(c).stream(number)
	if err != nil {
		return err
	}
	p[0] = uint64(c.Add(NewOutputStream(newOutput(stream, Place{})), 0))
	return nil
}

// terminalInput and terminalOutput are the resources of these names. They can do nothing yet: that
// there is one says that the stream is a terminal.
type (
	terminalInput  struct{}
	terminalOutput struct{}
)

func (*terminalInput) Drop()  {}
func (*terminalOutput) Drop() {}

func getTerminalStdin(c *canonical.Call, _ []uint64, out uint32) error {
	return putTerminal(c, out, 0, &terminalInput{})
}

func getTerminalStdout(c *canonical.Call, _ []uint64, out uint32) error {
	return putTerminal(c, out, 1, &terminalOutput{})
}

func getTerminalStderr(c *canonical.Call, _ []uint64, out uint32) error {
	return putTerminal(c, out, 2, &terminalOutput{})
}

// putTerminal writes the terminal that a standard stream is, if it is one.
func putTerminal(c *canonical.Call, out uint32, number int, r canonical.Resource) error {
	stream, err := Of(c).stream(number)
	if err != nil {
		return err
	}
	if stream.file.Terminal() {
		c.PutOption(out, r)
		return nil
	}
	c.Put8(out, 0)
	return nil
}
