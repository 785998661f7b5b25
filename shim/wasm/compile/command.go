package compile

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
)

// Main runs the compile face with the arguments after its name and returns the process's exit code.
func Main(args []string) int {
	err := command(args)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errdefs.ErrInvalidArgument), errors.Is(err, errRefused), errors.Is(err, errComponent):
		// The exit code says the class, the text need not.
		fmt.Fprintln(os.Stderr, strings.TrimSuffix(err.Error(), ": "+errdefs.ErrInvalidArgument.Error()))
		return exitRefused
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

func command(args []string) error {
	if skip, l, made, ok := asChild(args); ok {
		if err := checkEngine(made); err != nil {
			return err
		}
		return child(skip, l, compileInto)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	flags := flag.NewFlagSet("compile", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	cache := flags.String("cache", "", "directory of compiled modules")
	digest := flags.String("digest", "", "sha256 digest of the module")
	drop := flags.Bool("drop", false, "remove the module's entries")
	list := flags.Bool("list", false, "print what is kept")
	optimizeGo := flags.Bool("optimize-go", false, "rewrite the functions of Go's modules")
	memory := flags.Uint64("memory", 0, "bytes of memory that compilations may take")
	leased := flags.Bool("leased", false, "end when standard input does")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *cache == "":
		return errors.New("compile: -cache is missing")
	case *list && flags.NArg() == 0:
		kept, err := List(*cache)
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(kept))
	case *drop && flags.NArg() == 0:
		return Drop(*cache, *digest)
	case *drop || *list || flags.NArg() > 1 || flags.NArg() == 0 && !*leased:
		return errors.New("compile: one module is needed, and none to drop or to list")
	}
	if *leased {
		ctx = whileOpen(ctx, os.Stdin)
	}
	skip := Without(*optimizeGo)
	entry, err := Open(*cache, *digest, skip)
	if flags.NArg() == 1 {
		entry, err = Ensure(ctx, Options{CacheDir: *cache, Skip: skip, Memory: *memory}, flags.Arg(0), *digest)
	}
	if err != nil {
		return err
	}
	return entry.readAhead()
}

// whileOpen returns a context that ends when the other end of a pipe is closed.
func whileOpen(ctx context.Context, pipe *os.File) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, pipe)
	}()
	return ctx
}
