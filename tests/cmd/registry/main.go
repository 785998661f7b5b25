// Command registry builds the examples, packs each as an image and serves them on loopback until it
// is interrupted, so that the manifests of examples/ can be run as they are:
//
//	go run ./tests/cmd/registry
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/oci"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	address := flags.String("listen", "127.0.0.1:5000", "loopback `ADDRESS` to serve on")
	examples := flags.String("examples", "examples", "`FOLDER` of the examples' sources")
	return commandline.Run("registry", flags, args[1:], stderr, func(ctx context.Context) error { return serve(ctx, stdout, *address, *examples) })
}

func serve(ctx context.Context, stdout io.Writer, address, examples string) error {
	registry, err := oci.Serve(address)
	if err != nil {
		return err
	}
	defer registry.Close()
	for _, e := range oci.Examples() {
		ref, err := e.Push(ctx, registry, examples)
		if errors.Is(err, oci.ErrNoCompiler) {
			fmt.Fprintln(stdout, "left out:", err)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, ref)
	}
	<-ctx.Done()
	return nil
}
