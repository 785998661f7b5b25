package measure

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Goals of the first version, in milliseconds for calls (handler "" stands for every handler) and
// in bytes for memory.
var (
	callGoals = map[[2]string]float64{
		{"RunPodSandbox", ""}:      20,
		{"StartContainer", "wasm"}: 8,
		{"StartContainer", "runc"}: 40,
		{"StopPodSandbox", ""}:     15,
	}
	shimGoal  int64 = 5 << 20
	guestGoal int64 = 3 << 20
)

// Result is what was measured under one handler.
type Result struct {
	Workload
	Times  Times
	Memory Memory
	// Yard is what the machine took for other work meanwhile, nil if that was not measured.
	Yard *Yardstick
}

// Print writes the results as a table with the goals beside them. It returns how many goals were
// missed. A call's goal that was missed, but would not have been had the machine run as fast as
// where the goals were set, is marked by ~ and not counted.
func Print(out io.Writer, results []Result) (missed int, err error) {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	header := []string{""}
	for _, r := range results {
		header = append(header, r.Handler, "p95", "goal")
	}
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, call := range Calls {
		row := []string{call + ", ms"}
		for _, r := range results {
			median := Milliseconds(r.Times.Quantile(call, 0.5))
			goal, ok := callGoals[[2]string{call, r.Handler}]
			if !ok {
				goal, ok = callGoals[[2]string{call, ""}]
			}
			row = append(row, fmt.Sprintf("%.1f", median), fmt.Sprintf("%.1f", Milliseconds(r.Times.Quantile(call, 0.95))))
			row = append(row, against(median, goal, r.Yard.Slower(), ok, &missed))
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	shim, workload := []string{"shim PSS, MiB"}, []string{"workload PSS, MiB"}
	for _, r := range results {
		shim = append(shim, mebibytes(r.Memory.Shim), "", against(float64(r.Memory.Shim)/(1<<20), float64(shimGoal)/(1<<20), 1, true, &missed))
		workload = append(workload, mebibytes(r.Memory.Workload), "",
			against(float64(r.Memory.Workload)/(1<<20), float64(guestGoal)/(1<<20), 1, r.Handler == "wasm", &missed))
	}
	fmt.Fprintln(w, strings.Join(shim, "\t"))
	fmt.Fprintln(w, strings.Join(workload, "\t"))
	return missed, w.Flush()
}

// against is a goal's text, marked when it is missed. slower is how many times slower the machine
// is than the goal's.
func against(value, goal, slower float64, ok bool, missed *int) string {
	switch {
	case !ok:
		return ""
	case value <= goal:
		return fmt.Sprintf("≤ %g", goal)
	case value <= goal*slower:
		return fmt.Sprintf("≤ %g ~", goal)
	default:
		*missed++
		return fmt.Sprintf("≤ %g !", goal)
	}
}

// Milliseconds is a duration as a number of them.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebibytes(bytes int64) string { return fmt.Sprintf("%.2f", float64(bytes)/(1<<20)) }
