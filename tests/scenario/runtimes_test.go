package scenario

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// ociRuntime is an OCI runtime that the contract is tried with.
type ociRuntime struct {
	handler string
	program string   // a name, or a path from this folder
	cannot  []string // what of the contract it does not do; docs/operations.md has the same table
	none    string   // what it says about every container, if it makes none
}

// ociRuntimes are those that people have. The first two are Debian's and always there; the others
// are tried where `make runtimes` has made them.
var ociRuntimes = []ociRuntime{
	{handler: "runc", program: "runc"},
	{handler: "crun", program: "crun"},
	{handler: "runc13", program: "../tools-runc13/bin/runc"},
	{handler: "runc15", program: "../tools-containerd/bin/runc"},
	{handler: "newcrun", program: "../../.cache/crun/usr/bin/crun"},
	{handler: "youki", program: "../../.cache/youki/bin/youki", cannot: []string{
		"exec of what cannot be executed", "capabilities and seccomp", "shared PID namespace",
	}},
	{handler: "runsc", program: "../tools-runsc/bin/runsc", none: "cannot load sandbox"},
}

// installed are those that are here, with paths that do not depend on the working folder.
func installed(t *testing.T) []ociRuntime {
	t.Helper()
	var here []ociRuntime
	for i, r := range ociRuntimes {
		path, err := exec.LookPath(r.program)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			if i < 2 {
				t.Fatal(err)
			}
			continue
		}
		r.program = path
		here = append(here, r)
	}
	return here
}

// TestRuntimes tries the contract with every OCI runtime that is here, and prints a table.
func TestRuntimes(t *testing.T) {
	here := installed(t)
	var config strings.Builder
	for _, r := range here {
		if r.handler != "runc" && r.handler != "crun" { // which every node of these tests has
			fmt.Fprintf(&config, "[handlers.%s]\ntype = \"oci\"\nbinary = %q\n", r.handler, r.program)
		}
	}
	m := start(t, config.String())
	// The root of a user namespace passes through this folder to its root filesystem.
	if err := os.Chmod(m.Options.Dir, 0o711); err != nil {
		t.Fatal(err)
	}
	m.pull(world.Busybox)
	results := map[string]map[string]string{}
	for _, r := range here {
		results[r.handler] = map[string]string{}
		if r.none != "" {
			t.Run(r.handler, func(t *testing.T) { m.in(t).refuses(r) })
			continue
		}
		for _, c := range contract {
			t.Run(r.handler+"/"+c.name, func(t *testing.T) {
				err := m.in(t).try(r, c)
				results[r.handler][c.name] = "yes"
				if err != nil {
					results[r.handler][c.name] = "no"
				}
				switch cannot := slices.Contains(r.cannot, c.name); {
				case err != nil && !cannot:
					t.Error(err)
				case err == nil && cannot:
					t.Error("it can: the table says that it cannot")
				case err != nil:
					t.Logf("as the table says: %v", err)
				}
			})
		}
	}
	t.Logf("\n%s", runtimesTable(here, results, m.stopTimes(here)))
}

// refuses wants the words of a runtime that makes no container, from a start and, without a pod,
// from its trial.
func (m *machine) refuses(r ociRuntime) {
	m.t.Helper()
	if err := m.try(r, contract[0]); err == nil || !strings.Contains(err.Error(), r.none) {
		m.t.Errorf("a container: %v, want %q", err, r.none)
	}
	if !node.Within(node.Patience, func() bool {
		c, _ := m.ready()
		return strings.Contains(c.GetMessage(), r.program) && strings.Contains(c.GetMessage(), r.none)
	}) {
		c, _ := m.ready()
		m.t.Errorf("RuntimeReady does not tell of it: %v", c)
	}
}

// try runs one clause in a pod of its own.
func (m *machine) try(r ociRuntime, c clause) error {
	config := m.podConfig("contract")
	switch c.name {
	case "host network":
		config.Hostname = ""
		config.Linux.SecurityContext.NamespaceOptions.Network = runtime.NamespaceMode_NODE
	case "shared PID namespace":
		config.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
	case "user namespace":
		config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = ownUsers()
	}
	answer, err := m.RunPodSandbox(m.t.Context(), &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: r.handler})
	if err != nil {
		return err
	}
	m.Ran(answer.GetPodSandboxId())
	p := &pod{machine: m, id: answer.GetPodSandboxId(), handler: r.handler, config: config}
	return c.does(p)
}

// stopTimes are the shortest of how long StopContainer takes, with RemoveContainer, of containers
// that run and hear nothing.
func (m *machine) stopTimes(here []ociRuntime) map[string][2]time.Duration {
	times := map[string][2]time.Duration{}
	for _, r := range here {
		if r.none != "" {
			continue
		}
		p := m.run(r.handler)
		var stops, removes []time.Duration
		for range 10 {
			c, err := p.running(sh("echo up; exec sleep 1000"))
			if err != nil {
				m.t.Error(err)
				break
			}
			stops = append(stops, c.stop(0))
			begin := time.Now()
			if _, err := m.RemoveContainer(m.t.Context(), &runtime.RemoveContainerRequest{ContainerId: c.id}); err != nil {
				m.t.Error(err)
			}
			removes = append(removes, time.Since(begin))
		}
		p.remove()
		if len(stops) > 0 {
			times[r.handler] = [2]time.Duration{slices.Min(stops), slices.Min(removes)}
		}
	}
	return times
}

func runtimesTable(here []ociRuntime, results map[string]map[string]string, times map[string][2]time.Duration) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 2, 0, 2, ' ', 0)
	row := func(name string, of func(ociRuntime) string) {
		fmt.Fprint(w, name)
		for _, r := range here {
			fmt.Fprint(w, "\t", of(r))
		}
		fmt.Fprintln(w)
	}
	row("", func(r ociRuntime) string { return r.handler })
	row("version", func(r ociRuntime) string {
		text, err := exec.Command(r.program, "--version").Output()
		first, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimSpace(first[strings.LastIndexByte(first, ' ')+1:] + errText(err))
	})
	for _, c := range contract {
		row(c.name, func(r ociRuntime) string { return cmp.Or(results[r.handler][c.name], "no") })
	}
	row("StopContainer, killed", func(r ociRuntime) string { return times[r.handler][0].Round(time.Millisecond / 10).String() })
	row("RemoveContainer", func(r ociRuntime) string { return times[r.handler][1].Round(time.Millisecond / 10).String() })
	w.Flush()
	return out.String()
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return " " + err.Error()
}
