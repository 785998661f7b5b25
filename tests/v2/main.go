// Command v2 runs the project's suites with cgroup version 2, in User-Mode Linux: a kernel that is
// an ordinary process of this machine, over this machine's own files.
//
//	make v2-test
//	make v2-test V2_FLAGS=-short
//	make v2-test V2_FLAGS='-run "scenario|host/cgroup"'
//	make v2-test V2_FLAGS='-command "cat /sys/fs/cgroup/cgroup.controllers"'
//
// Each suite has a machine of its own, which is there within a second. As many machines run side by
// side as this one has processors, two at most. One line per suite goes to standard output, all
// that they say to the report folder.
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
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/suites"
	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// settings are the command line.
type settings struct {
	root, report, cache string // the project's folder, that of the logs, that of kernel and root file system
	selected            *regexp.Regexp
	short, systemd      bool
	again               bool // a suite that fails is run once more
	machines            bool // only the kernel and the root file system are made
	tests, command      string
	stdout              io.Writer
}

func run(args []string, stdout, stderr io.Writer) int {
	if builds.IsCompiler(args[0]) {
		code, err := standIn.Run(context.Background(), args, stderr)
		if err != nil {
			fmt.Fprintln(stderr, "v2:", err)
		}
		return code
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	s := settings{stdout: stdout}
	flags.StringVar(&s.root, "root", ".", "the project's `FOLDER`")
	flags.StringVar(&s.report, "report", ".cache/v2", "`FOLDER` for the suites' binaries and logs")
	flags.StringVar(&s.cache, "cache", "", "`FOLDER` for the kernel and the root file system (default: sunaba/v2 in the user's cache folder)")
	flags.StringVar(&s.command, "command", "", "run this shell `COMMAND` instead of the suites, and show what it says")
	flags.BoolVar(&s.systemd, "systemd", false, "run -command with systemd as the first process")
	flags.StringVar(&s.tests, "tests", "", "run only the tests, or critest's specs, whose name this `REGEXP` matches")
	flags.BoolVar(&s.short, "short", false, "run a part that is meant for continuous integration")
	flags.BoolVar(&s.again, "again", false, "run a suite that fails once more, and name it in the report")
	flags.BoolVar(&s.machines, "machines", false, "only make the kernel and the root file system, where they are not kept")
	pattern := flags.String("run", "", "run only the suites whose name this `REGEXP` matches")
	inside := flags.String("inside", "", "run the suite of this `FOLDER`: what a machine does")
	return commandline.Run("v2", flags, args[1:], stderr, func(ctx context.Context) error {
		if *inside != "" {
			return runInside(ctx, *inside)
		}
		return s.outside(ctx, *pattern)
	})
}

// complete makes the paths absolute and checks what a machine needs of this one.
func (s *settings) complete(pattern string) (err error) {
	switch {
	case os.Geteuid() != 0:
		return errors.New("not root: the suites make namespaces, mounts and cgroups. Run: sudo make v2-test")
	case runtime.GOARCH != "amd64":
		return fmt.Errorf("User-Mode Linux is for amd64; this is %s", runtime.GOARCH)
	}
	if s.selected, err = regexp.Compile(pattern); err != nil {
		return err
	}
	if s.cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("find the user's cache folder (or name one with -cache): %w", err)
		}
		s.cache = filepath.Join(user, "sunaba", "v2")
	}
	for _, path := range []*string{&s.root, &s.report, &s.cache} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
		if err := os.MkdirAll(*path, 0o755); err != nil {
			return err
		}
		// A machine sees folders, not what links of this machine lead to.
		if *path, err = filepath.EvalSymlinks(*path); err != nil {
			return err
		}
	}
	return nil
}

// outside makes what the machines need, runs the suites and reports.
func (s *settings) outside(ctx context.Context, pattern string) error {
	if err := s.complete(pattern); err != nil {
		return err
	}
	kernel, err := s.kernel(ctx)
	if err != nil {
		return err
	}
	if s.machines {
		_, err := s.tree(ctx)
		return err
	}
	b, err := s.builder(ctx)
	if err != nil {
		return err
	}
	jobs, err := s.jobs(b)
	if err != nil {
		return err
	}
	tree := ""
	if slices.ContainsFunc(jobs, func(j job) bool { return j.systemd }) {
		if tree, err = s.tree(ctx); err != nil {
			return err
		}
	}
	if len(jobs) == 0 {
		return fmt.Errorf("no suite matches %q", s.selected)
	}
	all := make([]suites.Suite, len(jobs))
	for i, j := range jobs {
		all[i] = j.suite
	}
	report, err := suites.NewReport(filepath.Join(s.report, "report"), all, s.stdout, s.command != "")
	if err != nil {
		return err
	}
	env, see, err := surroundings(b)
	if err != nil {
		return err
	}
	host := &builds.Host{Context: ctx, Root: s.root, Out: filepath.Join(b.Out, buildsDir)}
	if err := os.Mkdir(host.Out, 0o755); err != nil {
		return err
	}
	started := time.Now()
	todo := make(chan job, len(jobs))
	for _, j := range jobs {
		todo <- j
	}
	close(todo)
	var mu sync.Mutex
	var errs []error
	var facts sync.Once
	var workers sync.WaitGroup
	for processor := range min(2, runtime.NumCPU(), len(jobs)) {
		workers.Go(func() {
			for j := range todo {
				m := machine{kernel: kernel, processor: processor, see: see, env: env, report: report, host: host, facts: &facts}
				if j.systemd {
					m.tree = tree
				}
				if err := s.attempt(ctx, m, j.suite); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("suite %q: %w", j.suite.Name, err))
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	errs = append(errs, report.Finish())
	fmt.Fprintf(s.stdout, "%d suites in %.0f s\n", len(jobs), time.Since(started).Seconds())
	return errors.Join(errs...)
}

// attempt runs a suite, and with -again once more if it does not end as it should.
func (s *settings) attempt(ctx context.Context, m machine, one suites.Suite) error {
	first := m.run(ctx, one)
	if !s.again || ctx.Err() != nil {
		return first
	}
	again, err := m.report.Again(one.Name)
	if err != nil || !again {
		return errors.Join(first, err)
	}
	if first != nil {
		s.say("%s: %v", one.Name, first)
	}
	return m.run(ctx, one)
}

// builder is what builds the suites.
func (s *settings) builder(ctx context.Context) (*suites.Builder, error) {
	out := filepath.Join(s.report, "bin")
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	return &suites.Builder{Context: ctx, Root: s.root, Out: out, Inside: out, Scratch: "/run/scratch", Files: filepath.Join(s.root, ".cache/critest/debian"), Tested: s.tests, Slowness: 1}, nil
}

// tell runs a command that shows what it does.
func (s *settings) tell(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = s.stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

func (s *settings) say(format string, args ...any) { fmt.Fprintf(s.stdout, format+"\n", args...) }
