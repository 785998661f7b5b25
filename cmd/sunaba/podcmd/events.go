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
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
	"github.com/sunaba-project/sunaba/pods/api"
)

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name:      "events",
		Usage:     "say what happened",
		ArgsUsage: " ",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), objects.AllNamespacesFlag(), outputFlag("print as `FORMAT`: " + formatTexts),
			&cli.StringFlag{Name: "for", Usage: "only events of `KIND/NAME`"},
			&cli.StringSliceFlag{Name: "types", Usage: "only events of `TYPE`s: Normal, Warning"},
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "after listing, watch for new events"},
			&cli.BoolFlag{Name: "no-headers", Usage: "print rows only"},
		},
		Action: objects.WithAgent(events),
	}
}

// eventSelector is the field selector of the flags.
func eventSelector(cmd *cli.Command) (string, error) {
	var parts []string
	if name := cmd.String("for"); name != "" {
		if !strings.Contains(name, "/") {
			return "", errors.New("events: --for must be in resource/name form")
		}
		all, err := objects.Named([]string{name})
		if err != nil {
			return "", fmt.Errorf("events: --for: %w", err)
		}
		if len(all) != 1 {
			return "", errors.New("events: --for must be in resource/name form")
		}
		parts = append(parts, "involvedObject.kind="+all[0].Kind, "involvedObject.name="+all[0].Name)
	}
	var given []string
	for _, t := range cmd.StringSlice("types") {
		at := slices.IndexFunc([]string{corev1.EventTypeNormal, corev1.EventTypeWarning}, func(known string) bool { return strings.EqualFold(known, t) })
		if at < 0 {
			return "", errors.New("events: valid --types are Normal or Warning")
		}
		given = append(given, []string{corev1.EventTypeNormal, corev1.EventTypeWarning}[at])
	}
	if slices.Sort(given); len(slices.Compact(given)) == 1 {
		parts = append(parts, "type="+given[0])
	}
	return strings.Join(parts, ","), nil
}

func events(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	if cmd.NArg() > 0 {
		return errors.New("events: takes no arguments: use --for KIND/NAME")
	}
	o, err := outputOf(cmd)
	if err != nil {
		return err
	}
	r, err := objects.Resource("events")
	if err != nil {
		return err
	}
	q := objects.Query(cmd, r)
	if q.FieldSelector, err = eventSelector(cmd); err != nil {
		return err
	}
	options := o.options(cmd, false)
	options.LongTimes = true
	show := o.events(cmd, r, options)
	if cmd.Bool("watch") {
		return watchEvents(ctx, c, r, q, cmd.Root().ErrWriter, show)
	}
	l, err := c.List(ctx, r, q)
	if err != nil {
		return err
	}
	if err := sortEvents(l.Items); err != nil {
		return err
	}
	switch {
	case !o.table():
		return o.print(cmd.Root().Writer, cmd, []group{{r, l.Items}}, false)
	case len(l.Items) == 0 && cmd.Bool("all-namespaces"):
		fmt.Fprintln(cmd.Root().ErrWriter, "No events found.")
		return nil
	case len(l.Items) == 0:
		fmt.Fprintf(cmd.Root().ErrWriter, "No events found in %s namespace.\n", cmd.String("namespace"))
		return nil
	}
	return show(l.Items)
}

// events returns a function that prints events, each time below what it has printed before.
func (o output) events(cmd *cli.Command, r api.Resource, options table.Options) func([]json.RawMessage) error {
	if !o.table() {
		return func(items []json.RawMessage) error { return o.each(cmd.Root().Writer, r, items) }
	}
	printer := table.NewPrinter(cmd.Root().Writer, o.header(cmd, r, options))
	return func(items []json.RawMessage) error {
		rows, err := o.rows(r, items, time.Now(), options)
		if err != nil {
			return err
		}
		return printer.Print(rows)
	}
}

// sortEvents sorts events by when they were last seen.
func sortEvents(items []json.RawMessage) error {
	last := make(map[string]time.Time, len(items))
	for _, raw := range items {
		var e corev1.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		last[string(raw)] = table.LastSeen(&e)
	}
	slices.SortStableFunc(items, func(a, b json.RawMessage) int { return last[string(a)].Compare(last[string(b)]) })
	return nil
}

// watchEvents prints the events that there are, by time, and then those that come; what was
// forgotten is not told.
func watchEvents(ctx context.Context, c *api.Client, r api.Resource, q api.Query, say io.Writer, show func([]json.RawMessage) error) error {
	var first []json.RawMessage
	listed := false
	err := objects.Follow(ctx, c, r, q, say, func(change api.Change) error {
		switch {
		case change.Type == api.Deleted:
			return nil
		case change.Type == api.Listed:
			listed = true
			return errors.Join(sortEvents(first), show(first))
		case !listed:
			first = append(first, change.Object)
			return nil
		}
		return show([]json.RawMessage{change.Object})
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
