package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// table is what is printed in the end.
type table struct{ rows [][]string }

// add adds a line: what was measured, ours, the other's, and the goal with whether it was met; text
// "" is none.
func (t *table) add(what, ours, others, ratio, goal string, met bool) {
	verdict := ""
	if goal != "" {
		verdict = "met"
		if !met {
			verdict = "MISSED"
		}
	}
	t.rows = append(t.rows, []string{what, ours, others, ratio, goal, verdict})
}

func (t *table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nmedians, with the quarters of the values that lie below and above in brackets")
	fmt.Fprintln(w, strings.Join([]string{"", "ours", "beside it", "ratio", "goal", ""}, "\t"))
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// spread is the middle of some values and the quarters.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return spread{}
	}
	return spread{v[len(v)/4], v[len(v)/2], v[len(v)*3/4]}
}

func (s spread) text(format string) string {
	return fmt.Sprintf(format+" ["+format+" "+format+"]", s.median, s.low, s.high)
}

// ratios are those of each turn: what disturbs a turn of one disturbs that of the other.
func ratios(a, b []float64) []float64 {
	all := make([]float64, min(len(a), len(b)))
	for i := range all {
		all[i] = a[i] / b[i]
	}
	return all
}
