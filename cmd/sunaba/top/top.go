// Package top is the client behind `sunaba top`: a table of the node's pods, with what they use and
// what they cost beyond their containers' own work.
package top

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/classes"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/criserver/client"
	"github.com/sunaba-project/sunaba/criserver/overhead"
	"github.com/sunaba-project/sunaba/host/clock"
)

// Options say how to show.
type Options struct {
	Out   io.Writer
	Every time.Duration
	// Lines is the terminal's height, asked before each table; nil prints one table and ends.
	Lines func() int
	// Format is one of output, for what is printed once.
	Format string
}

// Row is a pod.
type Row struct {
	UID       string           `json:"-"` // not every client gives one
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Handler   string           `json:"handler"`
	CPU       float64          `json:"cpuCores"`              // below 0 before a second sample
	Memory    uint64           `json:"memoryBytes"`           // what the pod costs in all: Own and Measured
	Own       uint64           `json:"containersMemoryBytes"` // what its containers use themselves
	Declared  overhead.Amounts `json:"declaredOverhead"`
	Measured  uint64           `json:"measuredOverheadBytes"`
	Verdict   overhead.Verdict `json:"verdict"`
	Restarts  uint32           `json:"restarts"`
}

const (
	enter = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	leave = "\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
	rest  = "\x1b[J" // clear what is below
	eol   = "\x1b[K"
)

// Run shows the table until ctx ends, or once.
func Run(ctx context.Context, c client.Sandboxes, o Options) error {
	meter := NewMeter()
	if o.Lines == nil {
		// One table needs two samples for its CPU column.
		if _, err := Read(ctx, c, meter); err != nil {
			return err
		}
		if clock.Sleep(ctx, o.Every) != nil {
			return nil
		}
		rows, err := Read(ctx, c, meter)
		if err != nil {
			return err
		}
		if output.ForPrograms(o.Format) {
			return output.Encode(o.Out, append([]Row{}, rows...), o.Format)
		}
		return Print(o.Out, rows)
	}
	fmt.Fprint(o.Out, enter)
	defer fmt.Fprint(o.Out, leave)
	for {
		rows, err := Read(ctx, c, meter)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := show(o.Out, rows, o.Lines()); err != nil {
			return err
		}
		if clock.Sleep(ctx, o.Every) != nil {
			return nil
		}
	}
}

// Read asks the server for all pods. Those that cost most come first.
func Read(ctx context.Context, c client.Sandboxes, meter *Meter) ([]Row, error) {
	pods, err := classes.Pods(ctx, c)
	if err != nil {
		return nil, err
	}
	stats, err := c.ListPodSandboxStats(ctx, &runtime.ListPodSandboxStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask for the pods' use: %w", err)
	}
	containers, err := c.ListContainers(ctx, &runtime.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	used := map[string]*runtime.LinuxPodSandboxStats{}
	for _, s := range stats.GetStats() {
		used[s.GetAttributes().GetId()] = s.GetLinux()
	}
	restarts := countRestarts(containers.GetContainers())
	maps.DeleteFunc(meter.last, func(id string, _ *runtime.CpuUsage) bool { return used[id] == nil })
	var rows []Row
	for _, p := range pods {
		u := used[p.GetId()]
		o := p.Info.Overhead
		own := o.Measured.Own(u.GetMemory().GetWorkingSetBytes().GetValue())
		rows = append(rows, Row{
			UID: p.GetMetadata().GetUid(), Namespace: p.GetMetadata().GetNamespace(), Name: p.GetMetadata().GetName(), Handler: p.Info.Handler,
			CPU:    meter.cores(p.GetId(), u.GetCpu()),
			Memory: own + o.Measured.MemoryBytes, Own: own, Declared: o.Declared.Amounts,
			Measured: o.Measured.MemoryBytes, Restarts: restarts[p.GetId()],
			Verdict: overhead.Judge(o.Declared.Amounts, overhead.Sample{MemoryBytes: int64(o.Measured.MemoryBytes), CPUMillis: o.CPUMillis}),
		})
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return rows, nil
}

// countRestarts sums, by sandbox, how often each of its containers was started again.
func countRestarts(all []*runtime.Container) map[string]uint32 {
	type key struct{ sandbox, name string }
	newest := map[key]uint32{}
	for _, c := range all {
		k := key{c.GetPodSandboxId(), c.GetMetadata().GetName()}
		newest[k] = max(newest[k], c.GetMetadata().GetAttempt())
	}
	out := map[string]uint32{}
	for k, n := range newest {
		out[k.sandbox] += n
	}
	return out
}

// Meter turns CPU times into cores.
type Meter struct{ last map[string]*runtime.CpuUsage }

// NewMeter returns one that has seen nothing.
func NewMeter() *Meter { return &Meter{last: map[string]*runtime.CpuUsage{}} }

// cores is the rate since the sample before, -1 for a first one.
func (r *Meter) cores(id string, now *runtime.CpuUsage) float64 {
	before := r.last[id]
	r.last[id] = now
	passed := now.GetTimestamp() - before.GetTimestamp()
	if before == nil || now == nil || passed <= 0 || now.GetUsageCoreNanoSeconds().GetValue() < before.GetUsageCoreNanoSeconds().GetValue() {
		return -1
	}
	return float64(now.GetUsageCoreNanoSeconds().GetValue()-before.GetUsageCoreNanoSeconds().GetValue()) / float64(passed)
}

// Print writes the table.
func Print(out io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POD\tHANDLER\tCPU\tMEMORY\tOVERHEAD DECLARED\t| MEASURED\tVERDICT\tRESTARTS")
	for _, r := range rows {
		cpu := "-"
		if r.CPU >= 0 {
			cpu = fmt.Sprintf("%.3f", r.CPU)
		}
		declared := "-"
		if r.Declared.MemoryBytes > 0 {
			declared = units.Bytes(r.Declared.MemoryBytes)
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\t| %s\t%s\t%d\n", r.Namespace, r.Name, r.Handler, cpu, units.Bytes(int64(r.Memory)),
			declared, units.Bytes(int64(r.Measured)), r.Verdict, r.Restarts)
	}
	return w.Flush()
}

// show fills a screen: what does not fit is counted in its last line.
func show(out io.Writer, rows []Row, lines int) error {
	var table bytes.Buffer
	var own, cost uint64
	for _, r := range rows {
		own, cost = own+r.Own, cost+r.Measured
	}
	shown := rows
	if room := lines - 4; room > 0 && len(rows) > room {
		shown = rows[:room]
	}
	if err := Print(&table, shown); err != nil {
		return err
	}
	if n := len(rows) - len(shown); n > 0 {
		fmt.Fprintf(&table, "and %d more\n", n)
	}
	head := fmt.Sprintf("%d pods, memory %s: %s of their containers and %s overhead   (ctrl-c ends)\n\n",
		len(rows), units.Bytes(int64(own+cost)), units.Bytes(int64(own)), units.Bytes(int64(cost)))
	text := bytes.ReplaceAll(append([]byte(head), table.Bytes()...), []byte("\n"), []byte(eol+"\n"))
	_, err := fmt.Fprintf(out, "%s%s%s", home, text, rest)
	return err
}
