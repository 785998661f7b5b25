package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Verdicts on a program.
const (
	equal      = "equal"
	differs    = "DIFFERS"
	notBuilt   = "not built"
	timesOut   = "times out"
	notRun     = "not run"
	unsteady   = "unsteady"
	notAllowed = "dies"
)

// verdict is what the comparison of one program says.
type verdict struct {
	module, title    string
	as               form
	is               string
	why              string
	tests            map[string]string // by the stock run
	functions, moved int
	calls            uint64
	milli            [2]int64 // of the runs: stock and rewritten
}

// stock returns the results of stock wazero, which are kept.
func (s *suite) stock(ctx context.Context, m *module, file string) (results, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return results{}, err
	}
	for _, p := range m.programs {
		content = fmt.Append(content, p)
	}
	kept := filepath.Join(s.cache, hash(content)+".json")
	var r results
	if data, err := os.ReadFile(kept); err == nil && json.Unmarshal(data, &r) == nil && len(r.Programs) == len(m.programs) {
		return r, nil
	}
	if r, err = s.run(ctx, m, file, asBuilt, m.programs); err != nil || !m.lasting {
		return r, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	if err := os.WriteFile(kept+".new", data, 0o644); err != nil {
		return r, err
	}
	return r, os.Rename(kept+".new", kept)
}

// compare builds a module and runs it in both forms.
func (s *suite) compare(ctx context.Context, m *module, stockOnly bool) ([]verdict, error) {
	dir, err := os.MkdirTemp(s.cache, "build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, err := s.ready(ctx, m, dir)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return []verdict{{module: m.name, title: m.name, is: notBuilt, why: err.Error()}}, nil
	}
	stock, err := s.stock(ctx, m, file)
	if err != nil {
		return nil, err
	}
	if stock.Invalid != "" {
		return nil, fmt.Errorf("%s does not compile as it is: %s", m.name, stock.Invalid)
	}
	if stockOnly {
		return []verdict{{module: m.name, title: m.name, is: notRun, milli: [2]int64{stock.Milli, 0}}}, nil
	}
	var all []verdict
	for _, as := range s.forms {
		some, err := s.compareForm(ctx, m, file, as, stock)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// compareForm runs a module in a form and compares it with what it does as it was built.
func (s *suite) compareForm(ctx context.Context, m *module, file string, as form, stock results) ([]verdict, error) {
	changed, err := s.run(ctx, m, file, as, m.programs)
	if err != nil {
		return nil, err
	}
	var all []verdict
	for i, p := range m.programs {
		v := verdict{module: m.name, title: m.title(p), as: as, functions: changed.Count.Functions, moved: changed.Count.Rewritten}
		if changed.Invalid != "" {
			v.is, v.why = differs, changed.Invalid
		} else if err := s.judge(ctx, &v, m, file, p, stock.Programs[i], changed.Programs[i]); err != nil {
			return nil, err
		}
		if v.is == differs {
			if err := s.keepFiles(v, m, file, stock.Programs[i], changed, i); err != nil {
				return nil, err
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// judge compares two runs of a program. If they are not equal, more runs tell whether that is the
// program's own way.
func (s *suite) judge(ctx context.Context, v *verdict, m *module, file string, p program, stock, changed result) error {
	v.calls, v.milli = stock.Ending.Calls, [2]int64{stock.Milli, changed.Milli}
	if p.tests {
		v.tests = testResults(stock.Output)
	}
	switch why := unequal(stock, changed); {
	case stock.TimedOut && changed.TimedOut:
		v.is = timesOut
		return nil
	case bytes.Equal(stock.Output, []byte(missing)):
		v.is, v.why = notBuilt, "left out of its batch"
		return nil
	case len(why) == 0 && stock.Died != "":
		v.is, v.why = notAllowed, stock.Died
		return nil
	case len(why) == 0:
		v.is = equal
		return nil
	}
	stocks, changes := []result{stock}, []result{changed}
	for range 2 {
		again, err := s.run(ctx, m, file, asBuilt, []program{p})
		if err != nil {
			return err
		}
		stocks = append(stocks, again.Programs...)
		if v.is, v.why = weigh(stocks, changes, p.tests); v.is == unsteady {
			return nil // more runs would say no more
		}
		if again, err = s.run(ctx, m, file, v.as, []program{p}); err != nil {
			return err
		}
		changes = append(changes, again.Programs...)
	}
	v.is, v.why = weigh(stocks, changes, p.tests)
	return nil
}

// weigh says what several runs of a program in both forms mean. What is not the same in all stock
// runs is not compared, except for tests whose results are.
func weigh(stocks, changes []result, tests bool) (is, why string) {
	steady := map[string]bool{}
	for aspect := range aspects(stocks[0]) {
		steady[aspect] = true
	}
	for _, r := range stocks[1:] {
		for _, aspect := range unequal(stocks[0], r) {
			steady[aspect] = false
		}
	}
	count := map[string]int{}
	for _, r := range changes {
		for _, aspect := range unequal(stocks[0], r) {
			count[aspect]++
		}
	}
	var bad []string
	for aspect, is := range steady {
		if is && count[aspect] > 0 {
			bad = append(bad, fmt.Sprintf("%s (%d of %d runs)", aspect, count[aspect], len(changes)))
		}
	}
	if tests {
		bad = append(bad, testsThatDiffer(stocks, changes)...)
	}
	slices.Sort(bad)
	if n := len(bad); n > 0 {
		const most = 12 // the first that ends a program brings all behind it
		bad = bad[:min(n, most)]
		if n > most {
			bad = append(bad, fmt.Sprintf("and %d more", n-most))
		}
		return differs, strings.Join(bad, ", ")
	}
	var loose []string
	for aspect, is := range steady {
		if !is {
			loose = append(loose, aspect)
		}
	}
	slices.Sort(loose)
	return unsteady, "stock runs differ in " + strings.Join(loose, ", ")
}

// aspects are what is compared of a run.
func aspects(r result) map[string]string {
	e := r.Ending
	calls := fmt.Sprint(e.Calls, e.Trace)
	if strings.HasSuffix(e.Trap, "stack overflow") {
		calls = "" // how deep calls nest before that depends on the machine code
	}
	return map[string]string{
		"output": string(r.Output),
		"end":    fmt.Sprint(e.Code, e.Trap, r.TimedOut, r.Died != ""),
		"calls":  calls,
		"memory": fmt.Sprint(e.Pages, e.Memory),
	}
}

// unequal lists the aspects in which two runs differ.
func unequal(a, b result) []string {
	var names []string
	other := aspects(b)
	for name, is := range aspects(a) {
		if other[name] != is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// testsThatDiffer lists the tests whose result is the same in all stock runs and another one in
// every other.
func testsThatDiffer(stocks, changes []result) []string {
	want := testResults(stocks[0].Output)
	for _, r := range stocks[1:] {
		again := testResults(r.Output)
		maps.DeleteFunc(want, func(name, is string) bool { return again[name] != is })
	}
	var bad []string
	for name, is := range want {
		if !slices.ContainsFunc(changes, func(r result) bool { return testResults(r.Output)[name] == is }) {
			bad = append(bad, fmt.Sprintf("test %s was %s and is not", name, is))
		}
	}
	return bad
}

// testResults reads the results of tests in the output of a test binary.
func testResults(output []byte) map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`).FindAllSubmatch(output, -1) {
		all[string(m[2])] = string(m[1])
	}
	return all
}

// keepFiles keeps what shows a difference.
func (s *suite) keepFiles(v verdict, m *module, file string, stock result, changed results, i int) error {
	dir, p := filepath.Join(s.keep, strings.ReplaceAll(v.name(), "/", "_")), m.programs[i]
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	files := map[string][]byte{"module.wasm": module, "stock.txt": stock.Output, "source.go": []byte(m.source)}
	told := map[string]any{"args": p.args, "dir": p.dir, "stock": stock.Ending}
	if changed.Invalid == "" {
		files["rewritten.txt"] = changed.Programs[i].Output
		told["rewritten"] = changed.Programs[i].Ending
	}
	if files["ends.json"], err = json.MarshalIndent(told, "", "  "); err != nil {
		return err
	}
	for name, content := range files {
		if len(content) == 0 && name == "source.go" {
			continue
		}
		if err := writeFile(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}
