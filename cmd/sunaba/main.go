// Command sunaba is a Kubernetes CRI server for one node, and its command line.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/completion"
	"github.com/sunaba-project/sunaba/cmd/sunaba/cripod"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd"
	"github.com/sunaba-project/sunaba/cmd/sunaba/supportbundle"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/host/process"
	"github.com/sunaba-project/sunaba/version"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// run is the whole program; it returns the exit code.
func run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	places := podcmd.Places{State: defaultPlaces().state, Socket: defaultPlaces().socket}
	cmd := &cli.Command{
		Name:           "sunaba",
		Usage:          "run Kubernetes pods as Linux containers or as WebAssembly guests",
		Version:        version.String(),
		Writer:         out,
		ErrWriter:      errOut,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Commands: slices.Concat([]*cli.Command{
			serveCommand(), configCommand(), runCommand(), checkCommand(), supportbundle.Command(placeFlags(), supportNode), imageCommands().Images(), imageCommands().Rmi(), runtimeClassCommand(), topCommand(places.TopPods()),
			overheadCommand(), wasmCommand(), versionCommand(),
		}, cripod.Commands(socketFlag), completion.Commands(places.Complete), podcmd.Commands(places)),
	}
	// To set up all of them takes a millisecond. Only the hidden one that completes looks at others.
	if i := slices.IndexFunc(cmd.Commands, func(c *cli.Command) bool { return len(args) > 1 && c.HasName(args[1]) && !c.Hidden }); i >= 0 {
		cmd.Commands = cmd.Commands[i : i+1]
	}
	usage.Guard(cmd)
	return exitCode(cmd.Run(ctx, args), ctx.Err() != nil, errOut)
}

// exitCode is the program's exit code. It prints the error, unless that was done already.
func exitCode(err error, signalled bool, errOut io.Writer) int {
	var code usage.Exit
	var failed usage.Failure
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return process.ExitCode(int(code))
	case signalled && errors.Is(err, context.Canceled):
		text := strings.ReplaceAll(errtext.Of(err), context.Canceled.Error(), "interrupted")
		fmt.Fprintln(errOut, "sunaba:", strings.ReplaceAll(text, "interrupted: interrupted", "interrupted"))
		return usage.Interrupted
	}
	fmt.Fprintln(errOut, "sunaba:", errtext.Of(err))
	if errors.As(err, &failed) {
		return failed.Code
	}
	return 1
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Action: func(_ context.Context, cmd *cli.Command) error {
			_, err := fmt.Fprintln(cmd.Root().Writer, "sunaba", version.String())
			return err
		},
	}
}

func configCommand() *cli.Command {
	return &cli.Command{
		Name:  "config",
		Usage: "show or check a configuration",
		Commands: []*cli.Command{
			{
				Name:  "default",
				Usage: "print the default configuration, every field explained",
				Action: func(_ context.Context, cmd *cli.Command) error {
					_, err := io.WriteString(cmd.Root().Writer, defaultTOML)
					return err
				},
			},
			{
				Name:      "check",
				Usage:     "say what is wrong with a configuration file, without FILE with " + standardConfig,
				ArgsUsage: "[FILE]",
				Action: func(_ context.Context, cmd *cli.Command) error {
					if cmd.NArg() > 1 {
						return errors.New("config check: want one file")
					}
					name := cmp.Or(cmd.Args().First(), standardConfig)
					c, err := readConfig(name)
					if err != nil {
						return err
					}
					if err := c.tryHere(); err != nil {
						data, _ := os.ReadFile(name) // it was read a moment ago
						return configFile(name, data).Locate(err)
					}
					_, err = fmt.Fprintf(cmd.Root().Writer, "%s: ok\n", name)
					return err
				},
			},
		},
	}
}
