// Command vm runs the project's suites in a virtual machine with Debian's kernel and root file
// system, cgroup version 2 and AppArmor, which the machine that builds it may not have:
//
//	make vm-test
//	make vm-test VM_FLAGS='-run critest'
//	make vm-test VM_FLAGS='-run recovery-systemd -flags "-only wasm/StartContainer"'
//	make vm-test VM_FLAGS='-command "criu check"'
//
// The root file system is made once, from Debian's packages, and kept. Everything else, the Go
// toolchain and its caches too, is the host's, which the machine sees read-only; it has no network.
// One line per suite and cgroup driver goes to standard output, all that they say to the report
// folder.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/suites"
	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// settings are the command line.
type settings struct {
	root, cache string // the project's folder, and the one for what is made
	selected    *regexp.Regexp
	tests       string // of each suite; "" for all
	flags       []string
	command     string
	timeout     time.Duration
	stdout      io.Writer
}

func run(args []string, stdout, stderr io.Writer) int {
	if builds.IsCompiler(args[0]) {
		code, err := standIn.Run(context.Background(), args, stderr)
		if err != nil {
			fmt.Fprintln(stderr, "vm:", err)
		}
		return code
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	s := settings{stdout: stdout}
	flags.StringVar(&s.root, "root", ".", "the project's `FOLDER`")
	flags.StringVar(&s.cache, "cache", ".cache/vm", "`FOLDER` for the root file system and the report")
	flags.StringVar(&s.command, "command", "", "run this shell `COMMAND` in the machine instead of the suites, and show what it says")
	flags.DurationVar(&s.timeout, "timeout", 0, "`TIME` after which the machine is ended (default 2h, or 16h for an emulated one)")
	flags.StringVar(&s.tests, "tests", "", "run only the tests, or critest's specs, whose name this `REGEXP` matches")
	more := flags.String("flags", "", "give the suites' tests these `FLAGS` too, like '-only wasm/StartContainer' for those of recovery")
	pattern := flags.String("run", "", "run only the suites whose name this `REGEXP` matches")
	face := flags.Bool("inside", false, "run the suites: what the machine's unit does")
	return commandline.Run("vm", flags, args[1:], stderr, func(ctx context.Context) error {
		s.flags = strings.Fields(*more)
		if *face {
			return inside(ctx)
		}
		return s.outside(ctx, *pattern)
	})
}

// outside makes what the machine needs, runs it and reports.
func (s *settings) outside(ctx context.Context, pattern string) error {
	switch {
	case os.Geteuid() != 0:
		return errors.New("not root: the root file system has files of every owner. Run: sudo make vm-test")
	case runtime.GOARCH != "amd64":
		return fmt.Errorf("the machine is an amd64 one; this is %s", runtime.GOARCH)
	}
	var err error
	if s.selected, err = regexp.Compile(pattern); err != nil {
		return err
	}
	for _, path := range []*string{&s.root, &s.cache} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := s.setup(ctx); err != nil {
		return err
	}
	img, err := rootImage(ctx, filepath.Join(s.cache, "image"), filepath.Join(s.root, "tests/setup.sh"), s.say)
	if err != nil {
		return err
	}
	share := filepath.Join(s.cache, "share")
	b := &builder{suites.Builder{Context: ctx, Root: s.root, Out: share, Inside: agentDir, Scratch: scratch, Files: s.critestFiles(), Tested: s.tests, Flags: s.flags, Slowness: 1}}
	if !accelerated() {
		s.say("the processor's virtualization cannot be used: the machine is emulated, and many times slower")
		b.Slowness = emulated
	}
	if s.timeout == 0 {
		s.timeout = b.Slowness * 2 * time.Hour
	}
	p, err := s.plan(b)
	if err != nil {
		return err
	}
	report, err := suites.NewReport(filepath.Join(s.cache, "report"), p.Suites, s.stdout, s.command != "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	host := &builds.Host{Context: ctx, Root: s.root, Out: filepath.Join(share, buildsDir)}
	m := &machine{image: img, shares: append(p.Shares, share9p(agentTag, share)), console: filepath.Join(s.cache, "report", "console.log"), temp: s.cache}
	ran := m.run(ctx, func(e event) (*builds.Built, error) {
		if e.Build != nil {
			answer := host.Do(*e.Build)
			return &answer, nil
		}
		return nil, hearAll(report, e)
	})
	return errors.Join(ran, report.Finish())
}

// hearAll tells the report of one event.
func hearAll(report *suites.Report, e event) error {
	switch {
	case e.Fact != nil:
		report.Fact(e.Fact.Name, e.Fact.Value)
	case e.Begin != "":
		return report.Open(e.Begin)
	case e.Line != nil:
		return report.Line(e.Line.Suite, e.Line.Text)
	case e.File != nil:
		return report.File(e.File.Suite, e.File.Name, e.File.Data)
	case e.End != nil:
		return report.Ended(e.End)
	}
	return nil
}

func share9p(tag, path string) share { return share{Tag: tag, Path: path} }

func (s *settings) say(format string, args ...any) { fmt.Fprintf(s.stdout, format+"\n", args...) }

// setup installs what the host lacks, and gets what critest's images are packed from.
func (s *settings) setup(ctx context.Context) error {
	for _, args := range [][]string{
		{filepath.Join(s.root, "tests/setup.sh"), "qemu-system-x86_64:qemu-system-x86", "mmdebstrap:mmdebstrap", "mke2fs:e2fsprogs"},
		{filepath.Join(s.root, "tests/critest/fetch.sh"), s.critestFiles()},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = s.stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
	}
	return nil
}

func (s *settings) critestFiles() string { return filepath.Join(s.root, ".cache/critest/debian") }

// plan builds the suites and writes there what the machine is to do with them.
func (s *settings) plan(b *builder) (*plan, error) {
	if err := os.RemoveAll(b.Out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(b.Out, buildsDir), 0o755); err != nil {
		return nil, err
	}
	p, err := b.plan()
	if err != nil {
		return nil, err
	}
	if s.command != "" {
		p.Suites = []suites.Suite{{Name: "command", Dir: s.root, Command: []string{"sh", "-c", s.command}, Timeout: s.timeout}}
	} else if p.Suites, err = b.suites(s.selected); err != nil {
		return nil, err
	}
	if len(p.Suites) == 0 {
		return nil, fmt.Errorf("no suite matches %q", s.selected)
	}
	data, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return nil, err
	}
	return p, os.WriteFile(filepath.Join(b.Out, planFile), data, 0o644)
}
