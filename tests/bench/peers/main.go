// Command peers measures our server beside containerd and CRI-O, with runc, crun and runwasi's
// shim, on the same machine and the same images, by turns, and writes the page
// docs/performance/peers.md with its plots:
//
//	make bench-peers
//	make bench-peers BENCH_FLAGS='-rounds 5 -only cycles'
//
// Time is disturbed by what else runs on the machine; the processor time of a pod, which is counted
// of a server with all that it starts, is much less. It needs root and no internet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// inside is set in the environment of the program in namespaces of its own.
const inside = "SUNABA_BENCH_PEERS"

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// bench is what is measured, and with what.
type bench struct {
	out             io.Writer
	bin, containerd string
	crun, crio      string   // program; folder of programs; "" where they are not here
	wasmtime        string   // runwasi's shim; "" where it is not here
	missing         []string // what is left out
	of              string
	rounds          int
	wide, crowd     int           // pods at once
	length          time.Duration // of a turn with many pods at once
	only            string
	folder, check   string // of the page; file with figures to compare with
	dir             string
	subjects        []*subject
	figures         figures
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	b := &bench{out: stdout}
	flags.StringVar(&b.bin, "bin", "bin", "`FOLDER` of the two binaries")
	flags.StringVar(&b.containerd, "containerd", "tests/tools-containerd/bin", "`FOLDER` of containerd, its shim, runc and CNI plugins")
	flags.StringVar(&b.crun, "crun", ".cache/crun/usr/bin/crun", "crun `FILE`; without it, crun is left out")
	flags.StringVar(&b.crio, "crio", "", "`FOLDER` of crio and pinns; without it, or without conmon, CRI-O is left out")
	flags.StringVar(&b.wasmtime, "wasmtime", "", "`FILE` containerd-shim-wasmtime-v1 of runwasi; without it, it is left out")
	flags.StringVar(&b.of, "of", "", "measure only those whose name matches this `REGEXP`")
	flags.IntVar(&b.rounds, "rounds", 20, "`NUMBER` of turns of what is done one after another")
	flags.IntVar(&b.wide, "wide", 8, "`NUMBER` of pods that come and go at once")
	flags.IntVar(&b.crowd, "crowd", 60, "`NUMBER` of pods that start at once and idle")
	flags.DurationVar(&b.length, "length", 10*time.Second, "how long pods come and go at once")
	flags.StringVar(&b.only, "only", "", "parts to run, with commas between them; all when empty: cycles, wide, crowd")
	flags.StringVar(&b.folder, "write", "", "`FOLDER` to write peers.md, peers.json and the plots to; none when empty")
	flags.StringVar(&b.check, "check", "", "peers.json `FILE`: fail if our ratio to the peer is worse than there by more than a third")
	return commandline.Run("bench", flags, args[1:], stderr, func(ctx context.Context) error { return b.run(ctx, args[1:]) })
}

func (b *bench) run(ctx context.Context, args []string) (err error) {
	if os.Getenv(inside) == "" {
		return node.RunAgain(ctx, args, inside+"=1")
	}
	for _, path := range []*string{&b.folder, &b.check} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	if err := b.find(); err != nil {
		return err
	}
	if err := node.Loopback(); err != nil {
		return err
	}
	if b.dir, err = measure.Prepare("peers", "pods have namespaces and cgroups", &b.bin, &b.containerd); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	registry, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer registry.Close()
	servers, err := b.start(ctx, registry)
	defer func() {
		for _, p := range slices.Backward(servers) {
			err = errors.Join(err, p.end(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"cycles", b.cycles}, {"wide", b.wides}, {"crowd", b.crowds}} {
		if b.only != "" && !slices.Contains(strings.Split(b.only, ","), part.name) {
			continue
		}
		fmt.Fprintf(b.out, "%s ...\n", part.name)
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if err := b.figures.print(b.out); err != nil {
		return err
	}
	if b.folder != "" {
		if err := b.write(ctx); err != nil {
			return err
		}
	}
	if b.check != "" {
		return b.figures.compare(b.check)
	}
	return nil
}

// find looks for the peers that may be missing, and says which are.
func (b *bench) find() error {
	for _, p := range []struct {
		name    string
		path    *string
		program string // below the path
	}{{"crun", &b.crun, ""}, {"CRI-O", &b.crio, "crio"}, {"runwasi's wasmtime shim", &b.wasmtime, ""}} {
		path, err := filepath.Abs(*p.path)
		if err != nil {
			return err
		}
		found := *p.path != ""
		if found {
			_, err = exec.LookPath(filepath.Join(path, p.program))
			found = err == nil
		}
		if _, err := exec.LookPath("conmon"); p.path == &b.crio && err != nil {
			found = false
		}
		if *p.path = path; !found {
			*p.path = ""
			b.missing = append(b.missing, p.name)
			fmt.Fprintf(b.out, "left out: %s (it is not on this machine)\n", p.name)
		}
	}
	return nil
}

// hidden are folders that shims and OCI runtimes share with the whole machine; the ones here are
// this program's own.
var hidden = []string{"/run/sunaba", "/run/containerd", "/var/lib/sunaba"}

func hide() error {
	for _, dir := range hidden {
		if err := memory(dir); err != nil {
			return err
		}
	}
	return nil
}

// memory makes a folder of a file system in memory, as /run is.
func memory(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=711"); err != nil {
		return fmt.Errorf("mount %q: %w", dir, err)
	}
	return nil
}
