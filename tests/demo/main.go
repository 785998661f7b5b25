// Command demo shows the main job on this machine and checks it: one image reference, pulled once,
// runs as a Linux container and as a WebAssembly guest, driven by crictl. It prints what it does as
// it does it, ends with a table of measured figures, takes everything away again, and ends with 1
// when anything was not as it should be. `make demo` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "bin", "folder of the two binaries")
	crictl := flags.String("crictl", "tests/tools/bin/crictl", "crictl program")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(stderr, "demo: needs root: pods need namespaces, mounts and cgroups")
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()

	begin := time.Now()
	d := &demo{ctx: ctx, out: stdout}
	err := d.prepare(*bin, *crictl)
	if err == nil {
		err = d.play()
	}
	if cleaned := d.clean(); err == nil {
		err = cleaned
	}
	if err != nil {
		fmt.Fprintln(stderr, "\ndemo: this is not as it should be:", err)
		return 1
	}
	fmt.Fprintln(stdout, "\n"+d.verdict(time.Since(begin)))
	return 0
}

// verdict is the last line: what worked is one thing, how fast this machine is another.
func (d *demo) verdict(took time.Duration) string {
	rest := fmt.Sprintf("in %.0f s, and nothing is left", took.Seconds())
	switch d.missed {
	case 0:
		return "All as it should be, " + rest + "."
	case 1:
		return "Everything worked, " + rest + ". One goal was missed, marked with ! above: is other work on this machine?"
	}
	return fmt.Sprintf("Everything worked, %s. %d goals were missed, marked with ! above: is other work on this machine?", rest, d.missed)
}

// play is the whole demo.
func (d *demo) play() error {
	for _, act := range []func() error{d.packImages, d.startNode, d.pullOnce} {
		if err := act(); err != nil {
			return err
		}
	}
	for _, handler := range []string{"runc", "wasm"} {
		if err := d.oneHandler(handler); err != nil {
			return fmt.Errorf("under %s: %w", handler, err)
		}
	}
	for _, act := range []func() error{d.podManifest, d.figures} {
		if err := act(); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the folder of the demo and checks the programs.
func (d *demo) prepare(bin, crictl string) error {
	var err error
	if d.bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if d.crictlPath, err = filepath.Abs(crictl); err != nil {
		return err
	}
	for _, program := range []string{filepath.Join(d.bin, "sunaba"), filepath.Join(d.bin, "containerd-shim-sunaba-v1"), d.crictlPath} {
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("find the programs (make build tools): %w", err)
		}
	}
	d.dir, err = os.MkdirTemp("", "sunaba-demo-")
	return err
}
