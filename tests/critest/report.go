package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// reportFile is ginkgo's report below a variant's folder, tableFile our table.
const (
	reportFile = "report.json"
	tableFile  = "table.txt"
)

// suiteReport is what is read of ginkgo's JSON report.
type suiteReport struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeText            string
		LeafNodeType            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct{ Message string }
	}
}

// spec is one line of the table.
type spec struct {
	name, state, why string
	took             time.Duration
}

// knownSkip says whether a reason for skipping lies in this machine or in how critest is run, not in the runtime.
func knownSkip(why string) bool {
	return why == notSelected || strings.Contains(why, "AppArmor is disabled")
}

const notSelected = "not selected"

// report turns ginkgo's report into a table and says how it stands.
func (s *settings) report(v variant, out string, took time.Duration) error {
	specs, err := readReport(filepath.Join(out, reportFile))
	if err != nil {
		return err
	}
	table := filepath.Join(out, tableFile)
	if err := os.WriteFile(table, []byte(render(specs)), 0o644); err != nil {
		return err
	}
	counts := map[string]int{}
	reasons := map[string]int{}
	var bad []string
	for _, spec := range specs {
		counts[spec.state]++
		switch {
		case spec.state == "passed":
		case spec.state == "skipped":
			reasons[spec.why]++
			if !knownSkip(spec.why) {
				bad = append(bad, fmt.Sprintf("skipped  %s\n         %s", spec.name, spec.why))
			}
		default:
			bad = append(bad, fmt.Sprintf("%-8s %s\n         %s", spec.state, spec.name, brief(spec.why)))
		}
	}
	for _, line := range bad {
		fmt.Fprintln(s.stdout, line)
	}
	failed := len(specs) - counts["passed"] - counts["skipped"]
	fmt.Fprintf(s.stdout, "%s: %d passed, %d failed, %d skipped of %d specs in %.0f s; %s\n",
		v.name, counts["passed"], failed, counts["skipped"], len(specs), took.Seconds(), table)
	for _, why := range sorted(reasons) {
		fmt.Fprintf(s.stdout, "  %d skipped: %s\n", reasons[why], why)
	}
	if len(bad) > 0 || counts["passed"] == 0 {
		return fmt.Errorf("%d of %d specs failed or were skipped without need", len(bad), len(specs))
	}
	return nil
}

// brief leaves out the Go values that gomega prints below an error's text.
func brief(why string) string {
	var kept []string
	for line := range strings.Lines(why) {
		line = strings.TrimRight(line, " \n")
		if strings.HasSuffix(line, "{") || len(kept) == 6 {
			break
		}
		kept = append(kept, strings.TrimSpace(line))
	}
	return strings.Join(kept, "\n         ")
}

func readReport(file string) ([]spec, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("critest wrote no report: %w", err)
	}
	var suites []suiteReport
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("read critest's report: %w", err)
	}
	var specs []spec
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			if r.LeafNodeType != "It" && r.State == "passed" {
				continue // set-up of the suite
			}
			sp := spec{name: strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " / "), state: r.State, took: r.RunTime, why: r.Failure.Message}
			if sp.state == "skipped" && sp.why == "" {
				sp.why = notSelected // benchmarks, and what -focus leaves out
			}
			specs = append(specs, sp)
		}
	}
	if len(specs) == 0 {
		return nil, errors.New("critest's report holds no spec")
	}
	slices.SortFunc(specs, func(a, b spec) int { return cmp.Compare(a.name, b.name) })
	return specs, nil
}

// render makes a table: state, seconds, name, and for what did not pass why.
func render(specs []spec) string {
	var b strings.Builder
	for _, s := range specs {
		fmt.Fprintf(&b, "%-8s %6.2f  %s", s.state, s.took.Seconds(), s.name)
		if s.why != "" {
			fmt.Fprintf(&b, "  [%s]", strings.Join(strings.Fields(brief(s.why)), " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func sorted(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
