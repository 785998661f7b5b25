package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// report takes a machine's events and tells what they come to.
type report struct {
	dir     string
	stdout  io.Writer
	echo    bool // what suites say goes to stdout too
	results []*result
	logs    map[string]*os.File
	facts   []fact
}

// result is how one suite went.
type result struct {
	suite  suite
	counts counts
	end    *end // nil while it did not end
}

func (r *result) good() bool {
	return r.end != nil && r.end.Code == 0 && len(r.end.LeftOver) == 0 && len(r.counts.failed()) == 0
}

func newReport(dir string, suites []suite, stdout io.Writer, echo bool) (*report, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	r := &report{dir: dir, stdout: stdout, echo: echo, logs: map[string]*os.File{}}
	for _, s := range suites {
		r.results = append(r.results, &result{suite: s})
	}
	return r, os.MkdirAll(dir, 0o755)
}

func (r *report) result(name string) (*result, error) {
	i := slices.IndexFunc(r.results, func(r *result) bool { return r.suite.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the machine speaks of suite %q, which is not in its plan", name)
	}
	return r.results[i], nil
}

// hear takes one event.
func (r *report) hear(e event) error {
	switch {
	case e.Fact != nil:
		r.facts = append(r.facts, *e.Fact)
		fmt.Fprintf(r.stdout, "%-17s %s\n", e.Fact.Name, e.Fact.Value)
	case e.Begin != "":
		return r.open(e.Begin)
	case e.Line != nil:
		return r.line(e.Line.Suite, e.Line.Text)
	case e.File != nil:
		return os.WriteFile(filepath.Join(r.dir, fileName(e.File.Suite)+"-"+fileName(e.File.Name)), e.File.Data, 0o644)
	case e.End != nil:
		return r.ended(e.End)
	}
	return nil
}

// fileName is a name without slashes: it comes from the machine.
func fileName(name string) string { return strings.ReplaceAll(name, "/", "-") }

func (r *report) open(name string) error {
	if _, err := r.result(name); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.dir, fileName(name)+".log"))
	r.logs[name] = log
	return err
}

func (r *report) line(name, text string) error {
	res, err := r.result(name)
	if err != nil {
		return err
	}
	res.counts.line(text)
	text = strings.ReplaceAll(text, mark, "")
	if r.echo {
		fmt.Fprintln(r.stdout, text)
	}
	_, err = fmt.Fprintln(r.logs[name], text)
	return err
}

func (r *report) ended(e *end) error {
	res, err := r.result(e.Suite)
	if err != nil {
		return err
	}
	res.end = e
	if !r.echo {
		fmt.Fprintf(r.stdout, "%-28s %4.0f s  %s\n", e.Suite, e.Took.Seconds(), res.verdict())
	}
	return r.logs[e.Suite].Close()
}

// verdict is one phrase about a suite.
func (r *result) verdict() string {
	switch {
	case r.end == nil:
		return "did not end"
	case r.end.Why != "":
		return "FAILED: " + r.end.Why
	case r.end.Code != 0:
		return fmt.Sprintf("FAILED: exit code %d", r.end.Code)
	case len(r.counts.failed()) > 0:
		return "FAILED"
	case len(r.end.LeftOver) > 0:
		return "left behind: " + strings.Join(r.end.LeftOver, ", ")
	}
	return "ok"
}

// finish writes the table and says whether all is good.
func (r *report) finish() error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "suite\tpassed\tfailed\tskipped\tseconds\t")
	bad := 0
	for _, res := range r.results {
		seconds := "-"
		if res.end != nil {
			seconds = fmt.Sprintf("%.0f", res.end.Took.Seconds())
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%s\n", res.suite.Name, res.counts.passed(), len(res.counts.failed()), res.counts.skipped(), seconds, res.verdict())
		if !res.good() {
			bad++
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, res := range r.results {
		for _, name := range res.counts.failed() {
			fmt.Fprintf(&b, "%s: %s\n", res.suite.Name, name)
		}
	}
	if !r.echo {
		fmt.Fprintf(r.stdout, "\n%s", b.String())
	}
	err := os.WriteFile(filepath.Join(r.dir, "table.txt"), []byte(b.String()), 0o644)
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d suites are not as they should be; what they said is in %s", bad, len(r.results), r.dir))
	}
	return err
}
