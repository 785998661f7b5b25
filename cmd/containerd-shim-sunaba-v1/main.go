// Command containerd-shim-sunaba-v1 is everything of Sunaba that runs inside a pod: the shim that
// owns its containers, its supervisor, the guest process that runs a WebAssembly module, the
// process that compiles one, and the process that holds a shared PID namespace. It is one lean
// binary because its size is every pod's overhead.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sunaba-project/sunaba/shim/bootstrap"
	"github.com/sunaba-project/sunaba/shim/message"
	"github.com/sunaba-project/sunaba/shim/pause"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/guest"
	"github.com/sunaba-project/sunaba/version"
)

// defaultWasmCache is where compiled modules are by default.
const defaultWasmCache = "/var/lib/sunaba/wasm"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// arguments are what any face is given on the command line.
type arguments struct {
	bootstrap.Flags
	Socket     string // of serve: removed at the end
	WasmCache  string
	Supervised bool // serve is started by supervise
	Version    bool
	Info       bool
	Face       string
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 { // faces that are started often come first and take no flags
		switch args[0] {
		case "guest":
			return guest.Main(args[1:])
		case "pause":
			return pause.Main()
		case "compile":
			return compile.Main(args[1:])
		}
	}
	a, err := parse(args, stderr)
	if err != nil {
		return 2
	}
	if err := a.face(stdin, stdout); err != nil {
		fmt.Fprintf(stderr, "containerd-shim-sunaba-v1: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (arguments, error) {
	var a arguments
	f := flag.NewFlagSet("containerd-shim-sunaba-v1", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&a.Namespace, "namespace", "", "namespace of the containers")
	f.StringVar(&a.ID, "id", "", "container, for serve: pod")
	f.StringVar(&a.Address, "address", "", "containerd's socket")
	f.StringVar(&a.Bundle, "bundle", "", "bundle directory for delete, if not the working directory")
	f.StringVar(&a.Socket, "socket", "", "path of the socket that serve inherits, removed at its end")
	f.StringVar(&a.WasmCache, "wasm-cache", defaultWasmCache, "directory of compiled modules")
	f.String("publish-binary", "", "not used")
	f.BoolVar(&a.Supervised, "supervised", false, "with serve: descriptor 4 is the link to the supervisor that started it")
	f.BoolVar(&a.Debug, "debug", false, "log in detail")
	f.BoolVar(&a.Version, "v", false, "print the version")
	f.BoolVar(&a.Version, "version", false, "print the version")
	f.BoolVar(&a.Info, "info", false, "read runtime options on standard input, write what this runtime can do")
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: containerd-shim-sunaba-v1 [flags] start | delete | serve | supervise   (or -info, -v)")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return a, err
	}
	a.Face = f.Arg(0)
	return a, nil
}

// face runs the part that was asked for.
func (a arguments) face(stdin io.Reader, stdout io.Writer) error {
	ctx := context.Background()
	if a.Version {
		_, err := fmt.Fprintf(stdout, "containerd-shim-sunaba-v1:\n  Version: %s\n", version.String())
		return err
	}
	if a.Info {
		return bootstrap.Info(ctx, version.String(), stdin, stdout)
	}
	if err := a.check(); err != nil {
		return err
	}
	switch a.Face {
	case "start":
		return bootstrap.Start(ctx, a.Flags, stdin, stdout)
	case "delete":
		return a.delete(ctx, stdout)
	case "serve":
		return a.serve(ctx)
	case "supervise":
		return a.supervise()
	default:
		return fmt.Errorf("face %q: there are start, delete, serve, supervise, guest, compile and pause", a.Face)
	}
}

// check looks at the flags: a shim for a whole node is no container's or pod's.
func (a arguments) check() error {
	f := a.Flags
	if f.ID == "" && (a.Face == "supervise" || a.Supervised) {
		f.ID = "node"
	}
	return bootstrap.CheckFlags(f)
}

// delete answers as containerd expects: how the container ended, as a DeleteResponse.
func (a arguments) delete(ctx context.Context, stdout io.Writer) error {
	exit, pid, err := bootstrap.Delete(ctx, cmp.Or(a.Bundle, "."), a.ID)
	if err != nil {
		return err
	}
	if exit.At.IsZero() {
		exit.At = time.Now()
	}
	answer := &message.DeleteResponse{Pid: uint32(pid), ExitStatus: exit.Code, ExitedAt: message.At(exit.At)}
	_, err = stdout.Write(message.Marshal(answer))
	return err
}
