package measure

import (
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
)

// loadURL is where a pod's server is asked. load is "PORT" or "PORT/PATH".
func loadURL(ip, load string) string {
	port, path, _ := strings.Cut(load, "/")
	return "http://" + net.JoinHostPort(ip, port) + "/" + path
}

// quantile returns the value that a share q of all is not above, by the nearest rank.
func quantile[T int64 | float64](all []T, q float64) T {
	sorted := slices.Sorted(slices.Values(all))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func column[T any](all []Figures, of func(Figures) T) []T {
	out := make([]T, len(all))
	for i, f := range all {
		out[i] = of(f)
	}
	return out
}

// Table prints medians, 99th percentiles and maxima of every phase.
func Table(out io.Writer, all []Figures) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OVERHEAD OF A POD\tMEDIAN\tP99\tMAX")
	memory := func(name string, of func(Figures) int64) {
		c := column(all, of)
		fmt.Fprintf(w, "memory, %s\t%s\t%s\t%s\n", name, units.Bytes(quantile(c, 0.5)), units.Bytes(quantile(c, 0.99)), units.Bytes(slices.Max(c)))
	}
	cpu := func(name string, of func(Figures) float64) {
		c := column(all, of)
		fmt.Fprintf(w, "CPU, %s\t%.1fm\t%.1fm\t%.1fm\n", name, quantile(c, 0.5), quantile(c, 0.99), slices.Max(c))
	}
	memory("start", func(f Figures) int64 { return f.Start })
	memory("idle", func(f Figures) int64 { return f.Idle })
	memory("at work", func(f Figures) int64 { return f.Work })
	cpu("idle", func(f Figures) float64 { return f.IdleCPU })
	cpu("at work", func(f Figures) float64 { return f.WorkCPU })
	return w.Flush()
}

// Fixed is what a RuntimeClass is to declare: the 99th percentile of what the pods cost at most,
// rounded up to whole MiB and thousandths of a core.
func Fixed(all []Figures) (mebibytes, millis int64) {
	memory, cpu := quantile(column(all, Figures.Memory), 0.99), quantile(column(all, Figures.CPU), 0.99)
	return (memory + 1<<20 - 1) >> 20, max(int64(math.Ceil(cpu)), 1)
}

// Manifest writes the RuntimeClass.
//
// others are those that Run tells of.
func Manifest(out io.Writer, class, handler, how string, all []Figures, others int) error {
	memory, cpu := Fixed(all)
	if others > 0 {
		how += "\n# " + Disturbed(others)
	}
	_, err := fmt.Fprintf(out, `# overhead: the 99th percentile of %d pods, rounded up; measured with
#   %s
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: %s
handler: %s
overhead:
  podFixed:
    memory: %dMi
    cpu: %dm
`, len(all), how, class, handler, memory, cpu)
	return err
}
