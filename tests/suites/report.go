package suites

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// Report hears how suites run and says what that comes to. It may be told of several suites at
// once.
type Report struct {
	mu      sync.Mutex
	dir     string
	stdout  io.Writer
	echo    bool // what suites say is written to stdout too
	results []*result
	logs    map[string]*os.File
}

// result is how one suite went.
type result struct {
	suite  Suite
	counts counts
	end    *End     // nil while it did not end
	first  []string // what failed in the first of two attempts
}

func (r *result) good() bool {
	return r.end != nil && r.end.Code == 0 && len(r.end.LeftOver) == 0 && len(r.counts.failed()) == 0
}

// NewReport empties the folder dir for the suites' logs. With echo, what suites say is written to
// stdout too.
func NewReport(dir string, suites []Suite, stdout io.Writer, echo bool) (*Report, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	r := &Report{dir: dir, stdout: stdout, echo: echo, logs: map[string]*os.File{}}
	for _, s := range suites {
		r.results = append(r.results, &result{suite: s})
	}
	return r, os.MkdirAll(dir, 0o755)
}

func (r *Report) result(name string) (*result, error) {
	i := slices.IndexFunc(r.results, func(r *result) bool { return r.suite.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the machine speaks of suite %q, which is not in its plan", name)
	}
	return r.results[i], nil
}

// Fact shows what the results depend on.
func (r *Report) Fact(name, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.stdout, "%-17s %s\n", name, value)
}

// File keeps a file of a suite.
func (r *Report) File(suite, name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.dir, fileName(suite)+"-"+fileName(name)), data, 0o644)
}

// fileName is a name without slashes: it comes from the machine.
func fileName(name string) string { return strings.ReplaceAll(name, "/", "-") }

// Open says that a suite starts.
func (r *Report) Open(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.result(name); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.dir, fileName(name)+".log"))
	r.logs[name] = log
	return err
}

// Line is a line that a suite wrote.
func (r *Report) Line(name, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// Ended says how a suite ended.
func (r *Report) Ended(e *End) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	res, err := r.result(e.Suite)
	if err != nil {
		return err
	}
	res.end = e
	if !r.echo {
		fmt.Fprintf(r.stdout, "%-34s %4.0f s  %s\n", e.Suite, e.Took.Seconds(), res.verdict())
	}
	return r.logs[e.Suite].Close()
}

// Again reports whether a suite did not end as it should, and makes it ready for a second attempt.
// The first one's log is kept.
func (r *Report) Again(name string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res, err := r.result(name)
	if err != nil || res.good() {
		return false, err
	}
	fmt.Fprintf(r.stdout, "%-34s again: %s\n", name, res.verdict())
	res.first = append([]string{res.verdict()}, res.counts.failed()...)
	res.end, res.counts = nil, counts{}
	log := filepath.Join(r.dir, fileName(name)+".log")
	if err := os.Rename(log, strings.TrimSuffix(log, ".log")+"-first.log"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return true, nil
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
	if len(r.first) > 0 {
		return "ok at the second attempt"
	}
	return "ok"
}

// Finish writes the table. It is an error if a suite is not as it should be.
func (r *Report) Finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
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
		for _, why := range res.first {
			fmt.Fprintf(&b, "%s, first attempt: %s\n", res.suite.Name, why)
		}
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

// Tail is the last lines of a text.
func Tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
