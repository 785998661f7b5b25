package podcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
	"github.com/sunaba-project/sunaba/pods/api"
)

func getCommand() *cli.Command {
	return &cli.Command{
		Name:      "get",
		Usage:     "list pods, configmaps, secrets, pvc, runtimeclasses, nodes, manifests or events",
		ArgsUsage: "[KIND[,KIND...] [NAME...] | KIND/NAME...]",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), objects.AllNamespacesFlag(), objects.SelectorFlag(), objects.FieldSelectorFlag(),
			outputFlag("print as `FORMAT`: " + formatTexts), sortFlag(),
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "after listing, watch for changes"},
			&cli.BoolFlag{Name: "watch-only", Usage: "print only what changes"},
			&cli.BoolFlag{Name: "output-watch-events", Usage: "print with --watch whether an object was ADDED, MODIFIED or DELETED"},
			&cli.BoolFlag{Name: "ignore-not-found", Usage: "an object that is not there is no error"},
			&cli.StringSliceFlag{Name: "label-columns", Aliases: []string{"L"}, Usage: "print the values of `LABEL`s as columns"},
			&cli.BoolFlag{Name: "show-kind", Usage: "print the kind before each name"},
			&cli.BoolFlag{Name: "no-headers", Usage: "print rows only"},
			&cli.BoolFlag{Name: "show-labels", Usage: "print labels as the last column"},
		},
		Action: objects.WithAgent(get),
	}
}

func get(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	o, err := outputOf(cmd)
	if err != nil {
		return err
	}
	wanted, err := objects.Targets(cmd.Args().Slice())
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	if len(wanted) == 0 {
		wanted = []objects.Target{objects.Pod("")}
	}
	if slices.ContainsFunc(wanted, func(t objects.Target) bool { return t.Name != "" }) {
		switch {
		case cmd.Bool("all-namespaces"):
			return errors.New("get: a resource cannot be retrieved by name across all namespaces")
		case cmd.IsSet("selector"), cmd.IsSet("field-selector"):
			return errors.New("get: name cannot be provided when a selector is specified")
		}
	}
	out := cmd.Root().Writer
	if cmd.Bool("watch") || cmd.Bool("watch-only") {
		if len(wanted) != 1 {
			return errors.New("get: you may only specify a single resource type")
		}
		return watch(ctx, cmd, c, wanted[0], o, out)
	}
	found, missing, err := fetch(ctx, cmd, c, wanted, o.values())
	if err != nil {
		return err
	}
	if err := o.print(out, cmd, found, len(wanted) == 1 && wanted[0].Name != ""); err != nil {
		return err
	}
	if len(missing) > 0 && !cmd.Bool("ignore-not-found") {
		return missing.err()
	}
	return nil
}

// group are objects of one kind that stand in one table.
type group struct {
	api.Resource
	items []json.RawMessage
}

// absent are objects that were asked for by name and are not there.
type absent []objects.Target

func (a absent) err() error {
	var texts []string
	for _, t := range a {
		texts = append(texts, objects.NotFound(t).Error())
	}
	return fmt.Errorf("%s", strings.Join(texts, "\n"))
}

// fetch asks for objects and groups them by kind.
func fetch(ctx context.Context, cmd *cli.Command, c *api.Client, wanted []objects.Target, values bool) ([]group, absent, error) {
	var groups []group
	var missing absent
	for _, t := range wanted {
		q := objects.Query(cmd, t.Resource)
		q.Name, q.Values = t.Name, values
		l, err := c.List(ctx, t.Resource, q)
		if err != nil {
			return nil, nil, err
		}
		if t.Name != "" && len(l.Items) == 0 {
			missing = append(missing, t)
			continue
		}
		if n := len(groups) - 1; n >= 0 && groups[n].Kind == t.Kind {
			groups[n].items = append(groups[n].items, l.Items...)
			continue
		}
		groups = append(groups, group{t.Resource, l.Items})
	}
	return groups, missing, nil
}

// tables prints a table for each kind.
func (o output) tables(out io.Writer, cmd *cli.Command, groups []group, now time.Time) error {
	printed := 0
	for _, g := range groups {
		if len(g.items) == 0 {
			continue
		}
		if printed++; printed > 1 && !cmd.Bool("no-headers") {
			if _, err := fmt.Fprintln(out); err != nil {
				return err
			}
		}
		options := o.options(cmd, len(groups) > 1)
		rows, err := o.rows(g.Resource, g.items, now, options)
		if err != nil {
			return err
		}
		if err := table.NewPrinter(out, o.header(cmd, g.Resource, options)).Print(rows); err != nil {
			return err
		}
	}
	if printed > 0 {
		return nil
	}
	if cmd.Bool("ignore-not-found") {
		return nil
	}
	text := "No resources found"
	if len(groups) == 1 && groups[0].Namespaced && !cmd.Bool("all-namespaces") {
		text += " in " + cmd.String("namespace") + " namespace."
	}
	if len(groups) > 0 {
		fmt.Fprintln(cmd.Root().ErrWriter, text)
	}
	return nil
}

// watch prints the objects and then what changes, until ctx ends.
func watch(ctx context.Context, cmd *cli.Command, c *api.Client, t objects.Target, o output, out io.Writer) error {
	q := objects.Query(cmd, t.Resource)
	q.Name, q.Values = t.Name, o.values()
	options := o.options(cmd, false)
	header, told := o.header(cmd, t.Resource, options), cmd.Bool("output-watch-events")
	if told && header != nil {
		header = append([]string{"EVENT   "}, header...) // as wide as kubectl's
	}
	printer := table.NewPrinter(out, header)
	var first [][]string
	listed := false
	err := objects.Follow(ctx, c, t.Resource, q, cmd.Root().ErrWriter, func(change api.Change) error {
		if change.Type == api.Listed {
			listed = true
			return printer.Print(first)
		}
		if !listed && cmd.Bool("watch-only") {
			return nil
		}
		if !o.table() {
			return o.one(out, t.Resource, change.Object)
		}
		row, err := o.row(t.Resource, change.Object, time.Now(), options)
		if err != nil {
			return err
		}
		if told {
			row = append([]string{fmt.Sprintf("%-8s", strings.ToUpper(string(change.Type)))}, row...)
		}
		if !listed {
			first = append(first, row)
			return nil
		}
		return printer.Print([][]string{row})
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
