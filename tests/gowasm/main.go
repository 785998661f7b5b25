// Command gowasm compares what programs of Go's do on stock wazero with what they do when their
// functions have been rewritten (shim/wasm/gowasm): the tests of the standard library, the programs
// of GOROOT/test, the tests of Go's compiler, and programs that it generates. Each runs in a
// process of its own, with the same host functions, and a clock, randomness and files that are the
// same in each run. So a run is one sequence of host calls, and ends with one memory: those are
// compared beside what the program writes. Any difference is a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// guestVariable in the environment makes the process a child.
const guestVariable = "GOWASM_GUEST"

func main() {
	if os.Getenv(guestVariable) != "" {
		os.Exit(guestMain())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := compareAll(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gowasm:", err)
		os.Exit(1)
	}
}

// options are the command's.
type options struct {
	run       string
	time      time.Duration
	seed      uint64
	generated int
	folded    bool
	gcflags   string
	tests     string
	jobs      int
	cache     string
	keep      string
	markdown  string
	stockOnly bool
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("gowasm", flag.ContinueOnError)
	flags.StringVar(&o.run, "run", "", "compare only modules whose names match this regular expression")
	flags.DurationVar(&o.time, "time", 0, "start with no module after this time (0 = compare all)")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of generated programs, and of the order if there is a limit of time")
	flags.IntVar(&o.generated, "generated", 40, "how many programs to generate")
	flags.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "modules at a time")
	flags.StringVar(&o.cache, "cache", ".cache/gowasm", "directory of built modules and of stock wazero's results")
	flags.StringVar(&o.keep, "keep", ".cache/gowasm/differences", "directory that receives what differs")
	flags.StringVar(&o.markdown, "table", "", "file that receives the table of all programs")
	flags.BoolVar(&o.folded, "folded", false, "compare also functions that are rewritten as in modules that accept no connections")
	flags.StringVar(&o.gcflags, "gcflags", "", "flags of Go's compiler, such as 'all=-N -l'")
	flags.StringVar(&o.tests, "tests", "", "compare also the tests of the packages of Go modules in these directories, separated by commas")
	flags.BoolVar(&o.stockOnly, "stock", false, "only run stock wazero, and keep its results")
	return o, flags.Parse(args)
}

func compareAll(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s, err := newSuite(self, o.cache, o.keep, o.gcflags)
	if err != nil {
		return err
	}
	if o.folded {
		s.forms = append(s.forms, folded)
	}
	modules, err := s.modules(o)
	if err != nil {
		return err
	}
	begun := time.Now()
	all, err := s.compareModules(ctx, modules, o)
	t := table{verdicts: all, took: time.Since(begun), seed: o.seed}
	fmt.Print(t.summary())
	if o.markdown != "" {
		err = errors.Join(err, os.WriteFile(o.markdown, []byte(t.markdown()), 0o644))
	}
	if n := t.differences(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d programs differ; what shows it is in %s", n, o.keep))
	}
	return err
}

// modules lists what is to be compared.
func (s *suite) modules(o options) ([]*module, error) {
	match, err := regexp.Compile(o.run)
	if err != nil {
		return nil, err
	}
	var all []*module
	for _, list := range []func() ([]*module, error){s.std, s.codegen, s.goTests} {
		some, err := list()
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	for dir := range strings.FieldsFuncSeq(o.tests, func(c rune) bool { return c == ',' }) {
		some, err := s.packages(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	for n := range o.generated {
		all = append(all, s.generated(o.seed+uint64(n)))
	}
	var chosen []*module
	for _, m := range all {
		if match.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no module's name matches %q", o.run)
	}
	if _, err := os.Stat(filepath.Join(s.goroot, "test")); err != nil {
		fmt.Println("without the programs of GOROOT/test, which this distribution of Go does not have")
	}
	if o.time > 0 {
		rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	}
	return chosen, nil
}

// compareModules compares modules, several at a time.
func (s *suite) compareModules(ctx context.Context, modules []*module, o options) ([]verdict, error) {
	deadline := time.Now().Add(o.time)
	all := make([][]verdict, len(modules))
	errs := make([]error, len(modules))
	next := make(chan int)
	var group sync.WaitGroup
	for range o.jobs {
		group.Go(func() {
			for i := range next {
				if ctx.Err() != nil || o.time > 0 && time.Now().After(deadline) {
					all[i] = []verdict{{module: modules[i].name, title: modules[i].name, is: notRun}}
					continue
				}
				all[i], errs[i] = s.compare(ctx, modules[i], o.stockOnly)
				for _, v := range all[i] {
					fmt.Println(v.line())
				}
			}
		})
	}
	for i := range modules {
		next <- i
	}
	close(next)
	group.Wait()
	var verdicts []verdict
	for _, some := range all {
		verdicts = append(verdicts, some...)
	}
	return verdicts, errors.Join(errs...)
}
