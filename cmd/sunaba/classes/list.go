package classes

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Handler is a configured handler and what it can do on this machine.
type Handler struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Binary    string   `json:"binary"`            // the OCI runtime of its Linux containers, as it is configured
	Path      string   `json:"path,omitempty"`    // of its program
	Version   string   `json:"version,omitempty"` // as it tells it
	ShimScope string   `json:"shimScope"`
	Default   bool     `json:"default"`
	Platforms []string `json:"platforms"`
	Features  []string `json:"features,omitempty"` // as the server tells them; none without a server
	Engines   []string `json:"engines,omitempty"`  // with their versions
	Problem   string   `json:"problem,omitempty"`
}

// Row is one line of the list: a class with its handler, or a handler without a class.
type Row struct {
	Class    string  `json:"class,omitempty"`
	Handler  Handler `json:"handler"`
	Declared string  `json:"declaredOverhead"`
	// Measured are the overheads of the handler's pods that run now, in bytes, sorted; of the
	// class's where a pod's class can be told.
	Measured []int64 `json:"measuredOverheadBytes,omitempty"`
	Problem  string  `json:"problem,omitempty"`

	unasked bool // there was no server to tell of pods
}

// Examine finds out what the handler's engines are. shim is the path of the workload shim.
func (h *Handler) Examine(ctx context.Context, shim string) {
	if h.Type == string(runtimeclass.WASM) {
		engine, err := wasmEngine(shim)
		if err != nil {
			h.Problem = err.Error()
		} else {
			h.Engines = append(h.Engines, engine)
		}
	}
	if h.Path == "" && h.Problem == "" { // no server has told
		r := ociruntime.Probe(ctx, h.Binary)
		h.Path, h.Version, h.Problem = r.Path, r.Version, r.Text(h.Name)
	}
	if h.Path != "" {
		h.Engines = append(h.Engines, strings.TrimSpace(h.Version+" ("+h.Path+")"))
	}
}

// wasmEngine reads from the shim's program which engine it was built with.
func wasmEngine(shim string) (string, error) {
	info, err := binfmt.GoModules(shim)
	if err != nil {
		return "", fmt.Errorf("read the shim's build: %w", err)
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/tetratelabs/wazero" {
			return "wazero " + strings.TrimPrefix(m.Version, "v"), nil
		}
	}
	return "", fmt.Errorf("shim %q was built without wazero", shim)
}

// Rows joins classes, handlers and the overheads of pods that run, nil if there is no server to
// ask. A class whose handler is not configured says so.
func Rows(classes []nodev1.RuntimeClass, handlers []Handler, pods []Pod) []Row {
	var rows []Row
	used := map[string]bool{}
	for i := range classes {
		rc := &classes[i]
		row := Row{Class: rc.Name, Declared: runtimeclass.Quantities(runtimeclass.Overhead(rc)), Handler: Handler{Name: rc.Handler}}
		at := slices.IndexFunc(handlers, func(h Handler) bool { return h.Name == rc.Handler })
		if at < 0 {
			var names []string
			for _, h := range handlers {
				names = append(names, h.Name)
			}
			row.Problem = fmt.Sprintf("handler %q is not configured on this node (configured: %s): its pods are refused", rc.Handler, strings.Join(names, ", "))
		} else {
			row.Handler, used[rc.Handler] = handlers[at], true
			row.Measured = measured(pods, rc.Handler, rc.Name)
		}
		row.unasked = pods == nil
		rows = append(rows, row)
	}
	for _, h := range handlers {
		if !used[h.Name] {
			rows = append(rows, Row{Handler: h, Declared: "no class", Measured: measured(pods, h.Name, ""), unasked: pods == nil})
		}
	}
	return rows
}

func measured(pods []Pod, handler, class string) []int64 {
	var all []int64
	for _, p := range pods {
		if p.Info.Handler == handler && (p.Info.Overhead.Class == "" || class == "" || p.Info.Overhead.Class == class) {
			all = append(all, int64(p.Info.Overhead.Measured.MemoryBytes))
		}
	}
	slices.Sort(all)
	return all
}

// Print writes the list in a format of output; below a table stands what is wrong.
func Print(out io.Writer, rows []Row, format string) error {
	if output.ForPrograms(format) {
		return output.Encode(out, rows, format)
	}
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLASS\tHANDLER\tTYPE\tSHIM\tENGINE\tPLATFORMS\tFEATURES\tDECLARED OVERHEAD\tMEASURED NOW")
	var problems []string
	for _, r := range rows {
		name := r.Handler.Name
		if r.Handler.Default {
			name += " (default)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", dash(r.Class), name, dash(r.Handler.Type), dash(shimOf(r.Handler)), dash(strings.Join(r.Handler.Engines, ", ")),
			dash(strings.Join(r.Handler.Platforms, " ")), dash(strings.Join(r.Handler.Features, " ")), r.Declared, r.measured())
		for _, p := range []string{r.Problem, r.Handler.Problem} {
			if p != "" && !slices.Contains(problems, p) {
				problems = append(problems, p)
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range problems {
		fmt.Fprintf(out, "! %s\n", p)
	}
	return nil
}

// shimOf says whose a handler's shims are: "per pod", "per node".
func shimOf(h Handler) string {
	if h.ShimScope == "" {
		return ""
	}
	return "per " + h.ShimScope
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// measured says what the pods cost.
func (r Row) measured() string {
	all := r.Measured
	if r.unasked {
		return "-"
	}
	if len(all) == 0 {
		return "no pods"
	}
	pods := "1 pod"
	if len(all) > 1 {
		pods = fmt.Sprintf("median of %d pods", len(all))
	}
	return fmt.Sprintf("memory %s (%s)", units.Bytes(all[len(all)/2]), pods)
}
