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

// peerOf is the other's figure that one of ours is compared with, or nil.
func (all figures) peerOf(f *figure) *figure {
	i := slices.IndexFunc(all, func(o *figure) bool { return f.Ours && !o.Ours && o.What == f.What && o.Group == f.Group })
	if i < 0 {
		return nil
	}
	return all[i]
}

// ratio is ours by the peer's, 0 if there is no peer.
func (all figures) ratio(f *figure) float64 {
	if peer := all.peerOf(f); peer != nil && peer.median() != 0 {
		return f.median() / peer.median()
	}
	return 0
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

// rows are the lines of a table: what, subject, figure, ratio, load.
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

var columns = []string{"what", "of", "median [quarters]", "ratio", "load"}

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

// compare fails if a ratio of ours to a peer's is worse than on record.
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
		if now == 0 || then == 0 {
			continue
		}
		change := now / then
		if better(f.Unit) {
			change = 1 / change
		}
		if change > tolerance {
			worse = append(worse, fmt.Errorf("%s of %s: %.2f × its peer's, %.2f × on record", f.What, f.Subject, now, then))
		}
	}
	return errors.Join(worse...)
}

const intro = `# Beside containerd

` + "`make bench-peers BENCH_FLAGS='-write docs/performance'`" + ` makes this page, its plots and [peers.json](peers.json), with
which ` + "`BENCH_FLAGS='-check docs/performance/peers.json'`" + ` compares a later run: it fails if a ratio to the peer
is worse by more than a third.

Both servers are on one machine and have the same images; each figure is taken by turns, and the load of
the machine stands beside it. A ratio is ours by the peer's in the same run. Processor time is that of a
server and all that it starts, counted by a cgroup; a busy machine disturbs it least. Memory is the
proportional set size (PSS) of the same processes, after less before, by pods. "Our shim" is ours as a
runtime of that containerd.

`

const outro = `
Not here: CRI-O and runwasi, which cannot be built where this was measured (C libraries, and a Rust that is
newer than Debian's); crun, whose Debian release does not run beside both cgroup versions. Guests beside
wasmtime are in [guests.md](guests.md) and [components.md](components.md), pulls in [images.md](images.md).
`

// write writes the page, its plots and the figures.
func (b *bench) write(ctx context.Context) error {
	var page strings.Builder
	page.WriteString(intro)
	fmt.Fprintf(&page, "%s, %d processors, Linux %s, %s.\n\n", time.Now().Format("2 January 2006"), runtime.NumCPU(), said(ctx, "uname", "-r"), said(ctx, filepath.Join(b.containerd, "runc"), "--version"))
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
