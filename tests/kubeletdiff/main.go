// Command kubeletdiff runs the same manifests under sunaba's agent and under a standalone kubelet,
// each over a sunaba server of its own, and compares what is seen from outside:
//
//	make kubelet-diff
//	make kubelet-diff KUBELETDIFF_FLAGS='-run probe -v'
//
// Statuses, events, what the CRI was asked for, the order of the CRI's events, cgroups, logs and
// what containers saw are compared. A difference fails the command unless the manifest or the table
// of differences names it, with its row in docs/pods.md. A table at the end says what was compared.
// It needs root and no internet; all of it runs in a network and a mount namespace of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/sunaba-project/sunaba/tests/kubelet"
	"github.com/sunaba-project/sunaba/tests/node"
)

// inside is set in the environment of the process that runs in the new namespaces.
const inside = "SUNABA_KUBELETDIFF_INSIDE"

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// settings are the command line.
type settings struct {
	bin, kubelet, cases, report string
	only                        *regexp.Regexp
	parallel                    int
	verbose                     bool
	stdout                      io.Writer
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 3 && args[1] == healthCommand {
		return serveHealth(args[2], stderr)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	s := settings{stdout: stdout}
	flags.StringVar(&s.bin, "bin", "bin", "`FOLDER` of the two binaries")
	flags.StringVar(&s.kubelet, "kubelet", "tests/tools-kubelet/bin/kubelet", "the kubelet's `FILE`")
	flags.StringVar(&s.cases, "cases", "tests/kubeletdiff/testdata", "`FOLDER` of the manifests")
	flags.StringVar(&s.report, "report", ".cache/kubeletdiff", "`FOLDER` for what was seen, and for the logs")
	flags.IntVar(&s.parallel, "parallel", 6, "`NUMBER` of manifests that run at once")
	flags.BoolVar(&s.verbose, "v", false, "print the named differences too")
	only := flags.String("run", "", "run only the manifests whose name this `REGEXP` matches")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	var err error
	if s.only, err = regexp.Compile(*only); err == nil {
		err = s.absolute()
	}
	if err != nil {
		fmt.Fprintln(stderr, "kubeletdiff:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	step := s.outside
	if os.Getenv(inside) != "" {
		step = s.inside
	}
	if err := step(ctx, args[1:]); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || os.Getenv(inside) != "" {
			fmt.Fprintln(stderr, "kubeletdiff:", err)
		}
		return 1
	}
	return 0
}

func (s *settings) absolute() error {
	for _, path := range []*string{&s.bin, &s.kubelet, &s.cases, &s.report} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	return nil
}

// outside runs this command again in namespaces of its own.
func (s *settings) outside(_ context.Context, args []string) error {
	if os.Geteuid() != 0 {
		return errors.New("not root: it runs pods. Run: sudo make kubelet-diff")
	}
	// No Pdeathsig: what runs inside takes its nodes away when it is interrupted, as this process
	// is.
	again := node.Again(args, inside+"=1")
	again.Stdout = s.stdout
	return again.Run()
}

// inside runs every manifest on both sides and compares.
func (s *settings) inside(ctx context.Context, _ []string) error {
	cases, err := readCases(s.cases, s.only)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(s.report), os.MkdirAll(s.report, 0o755)); err != nil {
		return err
	}
	g, err := newGround(ctx, s)
	if err != nil {
		return err
	}
	defer g.close()
	seen := map[string]map[string]observation{}
	for _, start := range []func(context.Context, *ground) (*side, error){startAgent, startKubelet} {
		got, name, err := s.runSide(ctx, g, start, cases)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		seen[name] = got
	}
	return s.judge(cases, seen)
}

// runSide runs all manifests on one side and says what was seen of each.
func (s *settings) runSide(ctx context.Context, g *ground, start func(context.Context, *ground) (*side, error), cases []diffCase) (map[string]observation, string, error) {
	if len(kubelet.Cgroups()) == 0 { // no other kubelet has them
		defer kubelet.RemoveCgroups()
	}
	sd, err := start(ctx, g)
	if err != nil {
		return nil, "start", err
	}
	got, ran := sd.runAll(ctx, cases, s.parallel)
	closed := sd.close(context.WithoutCancel(ctx), s.report)
	return got, sd.title, errors.Join(ran, closed)
}
