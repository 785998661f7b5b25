package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
		AdditionalFailures      []struct{ Failure struct{ Message string } } // of earlier attempts
	}
}

// spec is one line of the table.
type spec struct {
	name, state, why string
	took             time.Duration
	again            bool // it failed first, which why says
}

// knownSkip says whether a reason for skipping lies in this machine or in how critest is run, not
// in the runtime.
func knownSkip(why string) bool {
	return why == notSelected || strings.Contains(why, "AppArmor is disabled")
}

const notSelected = "not selected"

// result is how one variant went with one server.
type result struct {
	server, variant string
	specs           []spec
	took            time.Duration
}

// title names a result: sunaba's by its variant alone.
func (r result) title() string {
	if r.server == sunabaName {
		return r.variant
	}
	return r.server + "-" + r.variant
}

// counts says how many specs passed, failed and were skipped.
func (r result) counts() (passed, failed, skipped int) {
	for _, s := range r.specs {
		switch s.state {
		case "passed":
			passed++
		case "skipped":
			skipped++
		default:
			failed++
		}
	}
	return passed, failed, skipped
}

// report writes a result's table and says how it stands: what failed, and what was skipped without
// need.
func (s *settings) report(r result, out string) error {
	table := filepath.Join(out, tableFile)
	if err := os.WriteFile(table, []byte(render(r.specs)), 0o644); err != nil {
		return err
	}
	var bad []string
	again := 0
	var text strings.Builder // written at once: another process may write too
	for _, spec := range r.specs {
		switch {
		case spec.again && spec.state == "passed":
			again++
			fmt.Fprintf(&text, "again    %s\n         %s\n", spec.name, brief(spec.why))
		case spec.state == "skipped" && !knownSkip(spec.why):
			bad = append(bad, fmt.Sprintf("skipped  %s\n         %s", spec.name, spec.why))
		case spec.state != "skipped" && spec.state != "passed":
			bad = append(bad, fmt.Sprintf("%-8s %s\n         %s", spec.state, spec.name, brief(spec.why)))
		}
	}
	for _, line := range bad {
		fmt.Fprintln(&text, line)
	}
	passed, failed, skipped := r.counts()
	fmt.Fprintf(&text, "%s: %d passed (%d at the second attempt), %d failed, %d skipped of %d specs in %.0f s; %s\n",
		r.title(), passed, again, failed, skipped, len(r.specs), r.took.Seconds(), table)
	if _, err := io.WriteString(s.stdout, text.String()); err != nil {
		return err
	}
	if len(bad) > 0 || passed == 0 {
		return fmt.Errorf("%d of %d specs failed or were skipped without need", len(bad), len(r.specs))
	}
	return nil
}

// summarize prints one line per result, and below it why specs were skipped.
func summarize(w io.Writer, results []result) {
	fmt.Fprintf(w, "\n%-20s %8s %8s %8s\n", "", "passed", "failed", "skipped")
	for _, r := range results {
		passed, failed, skipped := r.counts()
		fmt.Fprintf(w, "%-20s %8d %8d %8d\n", r.title(), passed, failed, skipped)
		reasons := map[string]int{}
		for _, s := range r.specs {
			if s.state == "skipped" {
				reasons[s.why]++
			}
		}
		for _, why := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintf(w, "%37s %8d  %s\n", "", reasons[why], why)
		}
	}
}

// compare prints, for every variant that two servers ran, the specs whose results differ.
func compare(w io.Writer, results []result) {
	for _, ours := range results {
		theirs, ok := counterpart(ours, results)
		if !ok {
			continue
		}
		lines := differences(ours, theirs)
		fmt.Fprintf(w, "\nvariant %s: %d specs differ\n", ours.variant, len(lines))
		if len(lines) > 0 {
			fmt.Fprintf(w, "  %-8s %-10s\n", ours.server, theirs.server)
		}
		for _, line := range lines {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

// counterpart is the result of a variant that was tested with the server it is compared with, false
// without one.
func counterpart(ours result, results []result) (result, bool) {
	i := slices.IndexFunc(results, func(r result) bool { return !tested(r.server) && r.variant == ours.variant })
	if !tested(ours.server) || i < 0 {
		return result{}, false
	}
	return results[i], true
}

// tested says whether a server is ours to answer for.
func tested(server string) bool { return server == sunabaName || server == pluginName }

// lost is an error about the specs that passed with containerd's own shim and not with ours.
func lost(results []result) error {
	var errs []error
	compared := false
	for _, ours := range results {
		theirs, ok := counterpart(ours, results)
		if !ok {
			continue
		}
		compared = true
		passed := map[string]bool{}
		for _, s := range ours.specs {
			passed[s.name] = s.state == "passed"
		}
		for _, s := range theirs.specs {
			if s.state == "passed" && !passed[s.name] {
				errs = append(errs, fmt.Errorf("variant %s: it passes with containerd's own shim alone: %s", ours.variant, s.name))
			}
		}
	}
	if !compared {
		return errors.New("nothing was compared")
	}
	return errors.Join(errs...)
}

// differences are the specs that went otherwise, one line each.
func differences(ours, theirs result) []string {
	states := func(r result) map[string]spec {
		m := map[string]spec{}
		for _, s := range r.specs {
			m[s.name] = s
		}
		return m
	}
	a, b := states(ours), states(theirs)
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, y := a[name], b[name]
		if x.state == y.state {
			continue
		}
		line := fmt.Sprintf("%-8s %-10s %s", cmp.Or(x.state, "absent"), cmp.Or(y.state, "absent"), name)
		for _, why := range []string{x.why, y.why} {
			if why != "" {
				line += "  [" + short(why) + "]"
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// short is as much of a reason as a line of the comparison holds; the tables have all of it.
func short(why string) string {
	words := []rune(strings.Join(strings.Fields(brief(why)), " "))
	if len(words) > 160 {
		return string(words[:160]) + "…"
	}
	return string(words)
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
			if first := r.AdditionalFailures; len(first) > 0 {
				sp.again = true
				if sp.why == "" {
					sp.why = first[0].Failure.Message
				}
			}
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
