// Command arches runs tests of the project built for other architectures, under the emulator of
// single programs that belongs to qemu (qemu-user):
//
//	make test-arches
//	make test-arches ARCHES_FLAGS=-short
//	make test-arches ARCHES_FLAGS='-run riscv64/images -tests TestPull'
//
// The kernel is this machine's, so what is tested is what differs between architectures: the size
// of integers, the alignment of atomics, the numbers of system calls and the layouts of their
// structs, and what wazero does there. left.go names what cannot be tested so. One line per suite
// goes to standard output, all that they say to the report folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/suites"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// settings are the command line.
type settings struct {
	root, report, qemu string // the project's folder, that of the logs, that of the emulators
	arches             []string
	selected           *regexp.Regexp
	tests              string
	short              bool
	stdout             io.Writer
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	s := settings{stdout: stdout}
	flags.StringVar(&s.root, "root", ".", "the project's `FOLDER`")
	flags.StringVar(&s.report, "report", ".cache/arches", "`FOLDER` for the suites' binaries and logs")
	flags.StringVar(&s.qemu, "qemu", ".cache/qemu/usr/bin", "`FOLDER` of the emulators, as tests/runtimes.sh fetches them")
	flags.StringVar(&s.tests, "tests", "", "run only the tests whose name this `REGEXP` matches")
	flags.BoolVar(&s.short, "short", false, "run a part that is meant for continuous integration")
	arches := flags.String("arches", "arm64,arm,riscv64", "the `ARCHITECTURES`, as Go names them")
	pattern := flags.String("run", "", "run only the suites whose name this `REGEXP` matches")
	inside := flags.Bool("inside", false, "run the suites here: this process is in namespaces of its own")
	return commandline.Run("arches", flags, args[1:], stderr, func(ctx context.Context) error {
		if !*inside {
			return enter(ctx, append([]string{"-inside"}, args[1:]...), stdout, stderr)
		}
		s.arches = strings.Split(*arches, ",")
		return s.inside(ctx, *pattern)
	})
}

// inside builds and runs the suites and reports.
func (s *settings) inside(ctx context.Context, pattern string) (err error) {
	if s.selected, err = regexp.Compile(pattern); err != nil {
		return err
	}
	for _, path := range []*string{&s.root, &s.report, &s.qemu} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := s.register(); err != nil {
		return err
	}
	started := time.Now()
	all, err := s.suites(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no suite matches %q", s.selected)
	}
	fmt.Fprintf(s.stdout, "%d suites built in %.0f s\n", len(all), time.Since(started).Seconds())
	report, err := suites.NewReport(filepath.Join(s.report, "report"), all, s.stdout, false)
	if err != nil {
		return err
	}
	started = time.Now()
	todo := make(chan suites.Suite, len(all))
	for _, one := range all {
		todo <- one
	}
	close(todo)
	var mu sync.Mutex
	var errs []error
	var workers sync.WaitGroup
	for range min(runtime.NumCPU(), len(all)) {
		workers.Go(func() {
			for one := range todo {
				if err := attempt(ctx, one, report); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("suite %q: %w", one.Name, err))
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	errs = append(errs, report.Finish())
	fmt.Fprintf(s.stdout, "%d suites in %.0f s\n", len(all), time.Since(started).Seconds())
	return errors.Join(errs...)
}

// attempt runs one suite.
func attempt(ctx context.Context, one suites.Suite, report *suites.Report) error {
	if err := errors.Join(ctx.Err(), report.Open(one.Name)); err != nil {
		return err
	}
	var lost error
	end := one.Run(ctx, nil, func(text string) { lost = errors.Join(lost, report.Line(one.Name, text)) }, nil)
	return errors.Join(lost, report.Ended(end))
}

// slowness is about how many times as long as this machine's own programs emulated ones take.
const slowness = 5

// suites builds the selected suites of each architecture, those that take longest first.
func (s *settings) suites(ctx context.Context) ([]suites.Suite, error) {
	var all []suites.Suite
	for _, arch := range s.arches {
		env := []string{"GOARCH=" + arch, "GOARM=7", node.SlownessVariable + "=" + fmt.Sprint(slowness), "SUNABA_TEST_BINARIES="}
		b := &suites.Builder{Context: ctx, Root: s.root, Out: filepath.Join(s.report, "bin", arch), Env: env, Tested: s.tests, Slowness: slowness}
		b.Inside = b.Out
		if err := errors.Join(os.RemoveAll(b.Out), os.MkdirAll(b.Out, 0o755)); err != nil {
			return nil, err
		}
		names, err := b.Packages()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if !s.chosen(name) || leftOut(arch, name, s.short) || !s.selected.MatchString(arch+"/"+name) {
				continue
			}
			b.Flags = []string{"-test.skip=" + skipped(arch, name, s.short)}
			if s.short {
				b.Flags = append(b.Flags, "-test.short")
			}
			one, err := b.Tests(name)
			if err != nil {
				return nil, err
			}
			one.Name, one.Env, one.Beside = arch+"/"+name, env, true
			all = append(all, one)
		}
	}
	slices.SortStableFunc(all, func(a, b suites.Suite) int { return rank(a) - rank(b) })
	return all, nil
}

// longest are the packages that take longest, so that they start first.
var longest = []string{"images", "shim/wasm/wasip1"}

func rank(s suites.Suite) int {
	_, name, _ := strings.Cut(s.Name, "/")
	if i := slices.Index(longest, name); i >= 0 {
		return i
	}
	return len(longest)
}
