// Package commandline is what the main functions of the programs below tests/ share.
package commandline

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Run parses a command line, runs until it is done or interrupted, and returns its exit code. name
// is the program's in its messages.
func Run(name string, flags *flag.FlagSet, args []string, stderr io.Writer, run func(context.Context) error) int {
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}
