package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Comparison is a table of what was measured here and of the same beside it.
type Comparison struct{ rows [][]string }

// Add adds a line: what was measured, ours, the other's, and the goal with whether it was met; text
// "" means none.
func (t *Comparison) Add(what, ours, others, ratio, goal string, met bool) {
	verdict := ""
	if goal != "" {
		verdict = "met"
		if !met {
			verdict = "MISSED"
		}
	}
	t.rows = append(t.rows, []string{what, ours, others, ratio, goal, verdict})
}

// Print writes the table.
func (t *Comparison) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nmedians, with the quarters of the values that lie below and above in brackets")
	fmt.Fprintln(w, strings.Join([]string{"", "ours", "beside it", "ratio", "goal", ""}, "\t"))
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// Spread is the middle of some values and the quarters.
type Spread struct{ Low, Median, High float64 }

// SpreadOf is that of values in any order.
func SpreadOf(values []float64) Spread {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{v[len(v)/4], v[len(v)/2], v[len(v)*3/4]}
}

// Text is the median with the quarters in brackets, each in a format for one number.
func (s Spread) Text(format string) string {
	return fmt.Sprintf(format+" ["+format+" "+format+"]", s.Median, s.Low, s.High)
}

// Ratios are those of each turn: what disturbs a turn of one disturbs that of the other.
func Ratios(a, b []float64) []float64 {
	all := make([]float64, min(len(a), len(b)))
	for i := range all {
		all[i] = a[i] / b[i]
	}
	return all
}
