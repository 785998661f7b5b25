package podcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
	"github.com/sunaba-project/sunaba/pods/api"
)

// TopPods is "pods", for the command "top".
func (p Places) TopPods() *cli.Command {
	return &cli.Command{
		Name: "pods", Aliases: []string{"pod", "po"},
		Usage:     "print CPU and memory of pods from manifests",
		ArgsUsage: "[POD]",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), objects.AllNamespacesFlag(), objects.SelectorFlag(), objects.FieldSelectorFlag(), objects.StateFlag(p.State),
			&cli.BoolFlag{Name: "containers", Usage: "print a row for each container"},
			&cli.StringFlag{Name: "sort-by", Usage: "print what uses most first: `FIGURE` is cpu or memory"},
			&cli.BoolFlag{Name: "sum", Usage: "print the sum as the last row"},
			&cli.BoolFlag{Name: "no-headers", Usage: "print rows only"},
		},
		UseShortOptionHandling: true,
		Action:                 objects.WithAgent(topPods),
	}
}

// used is a row of top: a pod, or a container of it.
type used struct {
	namespace, pod, container string
	nanoCores, memory         uint64
}

func topPods(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	by := cmd.String("sort-by")
	switch {
	case by != "" && by != "cpu" && by != "memory":
		return errors.New("top pods: --sort-by accepts only cpu or memory")
	case cmd.NArg() > 1:
		return errors.New("top pods: want one pod or none")
	case cmd.NArg() == 1 && (cmd.IsSet("selector") || cmd.IsSet("field-selector") || cmd.Bool("all-namespaces")):
		return errors.New("top pods: a name excludes --selector, --field-selector and --all-namespaces")
	}
	name, err := objects.PodName(cmd.Args().First())
	if err != nil {
		return fmt.Errorf("top pods: %w", err)
	}
	t := objects.Pod(name)
	q := objects.Query(cmd, t.Resource)
	q.Name = name
	pods, err := api.Objects[corev1.Pod](ctx, c, t.Resource, q)
	switch {
	case err != nil:
		return err
	case len(pods) == 0 && name != "":
		return objects.NotFound(t)
	case len(pods) == 0 && cmd.Bool("all-namespaces"):
		fmt.Fprintln(cmd.Root().ErrWriter, "No resources found")
		return nil
	case len(pods) == 0:
		fmt.Fprintf(cmd.Root().ErrWriter, "No resources found in %s namespace.\n", cmd.String("namespace"))
		return nil
	}
	measured, err := c.Usage(ctx)
	if err != nil {
		return err
	}
	all := usedBy(pods, measured, cmd.Bool("containers"))
	if len(all) == 0 {
		return errors.New("metrics not available yet: no container of these pods runs")
	}
	slices.SortStableFunc(all, func(a, b *used) int { // pointers share one sorting routine
		switch by {
		case "cpu":
			return cmp.Compare(b.nanoCores, a.nanoCores)
		case "memory":
			return cmp.Compare(b.memory, a.memory)
		}
		return 0
	})
	return printUsed(cmd, all)
}

// usedBy adds up what pods use, or lists their containers. Pods of which nothing runs are left out.
func usedBy(pods []corev1.Pod, measured []api.ContainerUsage, containers bool) []*used {
	var all []*used
	for _, p := range pods {
		sum, running := &used{namespace: p.Namespace, pod: p.Name}, false
		var each []*used
		for _, m := range measured {
			if m.Pod != p.UID {
				continue
			}
			running = true
			sum.nanoCores, sum.memory = sum.nanoCores+m.NanoCores, sum.memory+m.MemoryBytes
			each = append(each, &used{p.Namespace, p.Name, m.Container, m.NanoCores, m.MemoryBytes})
		}
		switch {
		case containers:
			slices.SortFunc(each, func(a, b *used) int { return cmp.Compare(a.container, b.container) })
			all = append(all, each...)
		case running:
			all = append(all, sum)
		}
	}
	return all
}

func cores(nano uint64) string      { return fmt.Sprintf("%dm", (nano+999_999)/1_000_000) }
func mebibytes(bytes uint64) string { return fmt.Sprintf("%dMi", bytes>>20) }

func printUsed(cmd *cli.Command, all []*used) error {
	header := []string{"NAME", "CPU(cores)", "MEMORY(bytes)"}
	containers, namespaces := cmd.Bool("containers"), cmd.Bool("all-namespaces")
	if containers {
		header = append([]string{"POD"}, header...)
	}
	if namespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if cmd.Bool("no-headers") {
		header = nil
	}
	var rows [][]string
	for _, u := range all {
		var row []string
		if namespaces {
			row = append(row, u.namespace)
		}
		row = append(row, u.pod)
		if containers {
			row = append(row, u.container)
		}
		rows = append(rows, append(row, cores(u.nanoCores), mebibytes(u.memory)))
	}
	if cmd.Bool("sum") {
		var sum used
		for _, u := range all {
			sum.nanoCores, sum.memory = sum.nanoCores+u.nanoCores, sum.memory+u.memory
		}
		blank := make([]string, len(rows[0])-2)
		rows = append(rows, append(slices.Clone(blank), "________", "________"), append(blank, cores(sum.nanoCores), mebibytes(sum.memory)))
	}
	return table.NewPrinter(cmd.Root().Writer, header).Print(rows)
}
