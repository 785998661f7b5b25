package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sunaba-project/sunaba/tests/measure"
)

// figure is what was measured of one subject.
type figure struct {
	What    string    `json:"what"`
	Unit    string    `json:"unit"`
	Group   string    `json:"group"`
	Subject string    `json:"subject"`
	Ours    bool      `json:"ours"`
	Values  []float64 `json:"values"`
	Loads   []float64 `json:"loads"` // of the machine at each value
}

func (f *figure) median() float64 { return measure.SpreadOf(f.Values).Median }

// figures are all of a run, in the order in which they were measured.
type figures []*figure

func (all *figures) note(what, unit string, s *subject, value, load float64) {
	i := slices.IndexFunc(*all, func(f *figure) bool { return f.What == what && f.Subject == s.title })
	if i < 0 {
		i = len(*all)
		*all = append(*all, &figure{What: what, Unit: unit, Group: s.group, Subject: s.title, Ours: s.ours})
	}
	f := (*all)[i]
	f.Values, f.Loads = append(f.Values, value), append(f.Loads, load)
}

// beside is our figure of what was measured of a peer, in the same group; nil without one.
func (all figures) beside(peer *figure) *figure {
	i := slices.IndexFunc(all, func(o *figure) bool { return o.Ours && !peer.Ours && o.What == peer.What && o.Group == peer.Group })
	if i < 0 {
		return nil
	}
	return all[i]
}

// ratio is our figure by that of a peer in the same group, 0 where there is none.
func (all figures) ratio(peer *figure) float64 {
	ours := all.beside(peer)
	if ours == nil || peer.median() == 0 {
		return 0
	}
	return ours.median() / peer.median()
}

// whats are the names of what was measured.
func (all figures) whats() []string {
	var list []string
	for _, f := range all {
		if !slices.Contains(list, f.What) {
			list = append(list, f.What)
		}
	}
	return list
}

// rows are the lines of a table: what, subject, figure, ours by it, load.
func (all figures) rows() [][]string {
	var rows [][]string
	for _, what := range all.whats() {
		for _, f := range all {
			if f.What != what {
				continue
			}
			ratio := ""
			if r := all.ratio(f); r != 0 {
				ratio = fmt.Sprintf("%.2f", r)
			}
			rows = append(rows, []string{what + ", " + f.Unit, f.Subject, measure.SpreadOf(f.Values).Text("%.2f"), ratio, fmt.Sprintf("%.1f", measure.SpreadOf(f.Loads).Median)})
		}
	}
	return rows
}

var columns = []string{"what", "of", "median [quarters]", "ours by it", "load"}

func (all figures) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{columns}, all.rows()...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// better says whether more of a unit is better.
func better(unit string) bool { return unit == "per second" }

// tolerance is by how much a ratio may be worse than the one on record.
const tolerance = 4.0 / 3

// noise is the percentage of a processor that is as good as none: a peer's below it is no measure.
// Ours is good enough up to idleGoal, the goal for a node of 500 pods: what a server does once after
// a burst is 0.05 to 0.2 % of the ten seconds that are watched.
const noise, idleGoal = 0.1, 0.5

// compare fails if ours by a peer's is worse than on record.
func (all figures) compare(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var before figures
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("read %q: %w", file, err)
	}
	var worse []error
	for _, f := range all {
		i := slices.IndexFunc(before, func(o *figure) bool { return o.What == f.What && o.Subject == f.Subject })
		if i < 0 {
			continue
		}
		now, then := all.ratio(f), before.ratio(before[i])
		if now == 0 || then == 0 || f.Unit == "%" && (f.median() < noise || all.beside(f).median() <= idleGoal) {
			continue
		}
		change := now / then
		if better(f.Unit) {
			change = 1 / change
		}
		if change > tolerance {
			worse = append(worse, fmt.Errorf("%s: ours is %.2f × that of %s, %.2f × on record", f.What, now, f.Subject, then))
		}
	}
	return errors.Join(worse...)
}

const intro = `# Beside containerd and CRI-O

` + "`make bench-peers BENCH_FLAGS='-write docs/performance'`" + ` makes this page, its plots and [peers.json](peers.json), with
which ` + "`BENCH_FLAGS='-check docs/performance/peers.json'`" + ` compares a later run: it fails if ours by a peer's is
worse by more than a third. CRI-O and runwasi's shim are measured where ` + "`-crio FOLDER`" + ` (crio and pinns; conmon
is that of the PATH) and ` + "`-wasmtime FILE`" + ` name them, and are left out elsewhere.

All servers are on one machine and have the same images; each figure is taken by turns, and the load of
the machine stands beside it. "Ours by it" is our figure by this peer's in the same run: below 1 we need
less, except that more pods' lives per second are better. Processor time is that of a server and all that
it starts, counted by a cgroup; a busy machine disturbs it least. Memory is the proportional set size (PSS)
of the same processes, after less before, by pods. "Our shim" is ours as a runtime of that containerd, and
"wasmtime's shim" is runwasi's; both run the same C guest. The cgroup v2 hierarchy, where it is mounted
beside version 1, is hidden from all servers: crun does not work where it sees both.

`

const outro = `
Guests beside wasmtime are in [guests.md](guests.md) and [components.md](components.md), pulls in [images.md](images.md).
`

// versions says what was measured.
func (b *bench) versions(ctx context.Context) string {
	list := []string{said(ctx, filepath.Join(b.containerd, "containerd"), "--version"), said(ctx, filepath.Join(b.containerd, "runc"), "--version")}
	if b.crun != "" {
		list = append(list, said(ctx, b.crun, "--version"))
	}
	if b.crio != "" {
		list = append(list, said(ctx, filepath.Join(b.crio, "crio"), "--version"), said(ctx, "conmon", "--version"))
	}
	return strings.Join(list, ", ")
}

// write writes the page, its plots and the figures.
func (b *bench) write(ctx context.Context) error {
	var page strings.Builder
	page.WriteString(intro)
	fmt.Fprintf(&page, "%s, %d processors, Linux %s, %s.\n\n", time.Now().Format("2 January 2006"), runtime.NumCPU(), said(ctx, "uname", "-r"), b.versions(ctx))
	if len(b.missing) > 0 {
		fmt.Fprintf(&page, "Left out, because it was not on the machine: %s.\n\n", strings.Join(b.missing, ", "))
	}
	fmt.Fprintf(&page, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
	for _, row := range b.figures.rows() {
		fmt.Fprintf(&page, "| %s |\n", strings.Join(row, " | "))
	}
	page.WriteString("\n")
	for i, what := range b.figures.whats() {
		var bars []measure.Bar
		unit := ""
		for _, f := range b.figures {
			if f.What == what {
				bars, unit = append(bars, measure.Bar{Name: f.Subject, Values: measure.SpreadOf(f.Values), Ours: f.Ours}), f.Unit
			}
		}
		name := fmt.Sprintf("peers-%d.svg", i+1)
		if err := os.WriteFile(filepath.Join(b.folder, name), []byte(measure.BarChart(what+", "+unit, bars)), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&page, "![%s](%s)\n", what, name)
	}
	page.WriteString(outro)
	data, err := json.MarshalIndent(b.figures, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(b.folder, "peers.json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(b.folder, "peers.md"), []byte(page.String()), 0o644))
}

// said is the first line that a program prints, or its error.
func said(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
