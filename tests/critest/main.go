// Command critest runs Kubernetes' conformance tests for container runtimes, critest of cri-tools,
// against sunaba:
//
//	make critest
//	make critest CRITEST_FLAGS='-variants crun -focus Seccomp'
//	make critest CRITEST_FLAGS='-variants runc -runtime tests/tools-containerd/bin/runc'
//	make critest-diff
//	make containerd-test
//
// It needs no internet once fetch.sh has got what the images are packed from: every registry that
// critest names is mirrored on loopback, and the names stay. All of it runs in a network and a
// mount namespace of its own. One line per spec goes to the report folder; the command fails if a
// spec failed, or was skipped for a reason it does not know. Two processes share out the variants
// where nothing is compared and AppArmor, whose profiles' names critest has fixed, is disabled.
// critest-diff runs the same against
// containerd and says where the two differ. containerd-test compares containerd that runs our shim
// with containerd that runs its own: what passes with its own has to pass with ours.
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
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-project/sunaba/tests/node"
)

// inside is set in the environment of the process that runs in the new namespaces.
const inside = "SUNABA_CRITEST_INSIDE"

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// settings are the command line.
type settings struct {
	bin, critest, sources, cache string
	containerd                   string // folder of its binaries; "" to run sunaba alone
	plugin                       bool   // not sunaba is tested, but our shim in containerd
	runtime                      string // OCI runtime of sunaba's runc handlers; "" is the one in PATH
	variants                     []variant
	focus                        string
	timeout                      time.Duration // of one variant
	again                        bool          // a spec that fails is run once more
	stdout                       io.Writer
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	s := settings{stdout: stdout}
	flags.StringVar(&s.bin, "bin", "bin", "`FOLDER` of the two binaries")
	flags.StringVar(&s.critest, "critest", "tests/tools/bin/critest", "critest's `FILE`")
	flags.StringVar(&s.sources, "sources", "tests/critest", "`FOLDER` of fetch.sh and the images' programs")
	flags.StringVar(&s.cache, "cache", ".cache/critest", "`FOLDER` for what is made once, and for the reports")
	flags.DurationVar(&s.timeout, "timeout", 40*time.Minute, "`TIME` that a variant may take")
	flags.BoolVar(&s.again, "again", false, "run a spec that fails once more, and name it in the report")
	flags.StringVar(&s.focus, "focus", "", "run only the specs that this `REGEXP` matches")
	flags.StringVar(&s.containerd, "containerd", "", "run the same against containerd, whose binaries are in this `FOLDER`, and compare")
	flags.BoolVar(&s.plugin, "plugin", false, "test our shim in containerd, with -containerd, instead of sunaba")
	flags.StringVar(&s.runtime, "runtime", "", "OCI runtime `FILE` of sunaba's handlers, for all variants but crun; without it, runc")
	names := flags.String("variants", strings.Join(variantNames(), ","), "which of these to run, separated by commas")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	if err := s.complete(*names); err != nil {
		fmt.Fprintln(stderr, "critest:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // a reader that went away must not keep a node from being taken away
	step := s.outside
	if os.Getenv(inside) != "" {
		step = s.inside
	}
	if err := step(ctx, args[1:]); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || os.Getenv(inside) != "" {
			fmt.Fprintln(stderr, "critest:", err)
		}
		return 1
	}
	return 0
}

func (s *settings) complete(names string) error {
	if s.plugin && s.containerd == "" {
		return errors.New("-plugin needs -containerd")
	}
	for _, path := range []*string{&s.bin, &s.critest, &s.sources, &s.cache, &s.containerd, &s.runtime} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
		if i < 0 {
			return fmt.Errorf("there is no variant %q; there are %s", name, strings.Join(variantNames(), ", "))
		}
		s.variants = append(s.variants, variants[i])
	}
	return nil
}

// outside fetches what the images are packed from, while there is a network, and runs this command
// again in namespaces of its own.
func (s *settings) outside(ctx context.Context, args []string) error {
	if os.Geteuid() != 0 {
		return errors.New("not root: it runs pods. Run: sudo make critest")
	}
	fetch := exec.CommandContext(ctx, filepath.Join(s.sources, "fetch.sh"), filepath.Join(s.cache, "debian"))
	fetch.Stdout, fetch.Stderr = s.stdout, os.Stderr
	if err := fetch.Run(); err != nil {
		return fmt.Errorf("fetch what the images are packed from: %w", err)
	}
	var running []*exec.Cmd
	var failed error
	for _, share := range shares(s.variants, s.processes()) {
		// No Pdeathsig: what runs inside takes its node away when it is interrupted, as this process
		// is.
		again := node.Again(append(slices.Clone(args), "-variants="+share), inside+"=1")
		again.Stdout = s.stdout
		if failed = again.Start(); failed != nil {
			break
		}
		running = append(running, again)
	}
	for _, again := range running {
		if err := again.Wait(); failed == nil {
			failed = err
		}
	}
	return failed
}

// processes is how many run side by side. A spec waits more than it computes.
func (s *settings) processes() int {
	enforced, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if s.containerd != "" || err == nil && strings.HasPrefix(string(enforced), "Y") {
		return 1
	}
	return min(2, runtime.NumCPU())
}

// shares deals variants out to n processes, each in the order that they have; those of one process
// are separated by commas.
func shares(variants []variant, n int) []string {
	all := make([]string, min(n, len(variants)))
	for i, v := range variants {
		if i >= len(all) {
			all[i%len(all)] += ","
		}
		all[i%len(all)] += v.name
	}
	return all
}
