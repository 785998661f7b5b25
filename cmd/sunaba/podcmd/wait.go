package podcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/fieldpath"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
)

const (
	waitTime = 30 * time.Second
	// longTime stands for no limit, as in kubectl.
	longTime = 7 * 24 * time.Hour
)

func waitCommand() *cli.Command {
	return &cli.Command{
		Name:        "wait",
		Usage:       "wait until pods are as they should be, or objects are deleted",
		ArgsUsage:   "KIND NAME... | KIND/NAME...",
		Description: "Objects that are named and not there yet are waited for. Ends with 1 after the time is over.",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), objects.AllNamespacesFlag(), objects.SelectorFlag(),
			&cli.BoolFlag{Name: "all", Usage: "all objects of the kind in the namespace"},
			&cli.StringFlag{Name: "for", Usage: "`WHAT` to wait for: condition=Ready, condition=Ready=false, jsonpath={.status.phase}=Running, create, delete"},
			&cli.DurationFlag{Name: "timeout", Usage: "`TIME` to wait; 0 looks once, below 0 is a week", Value: waitTime},
			outputFlag("print as `FORMAT`: name"),
		},
		Action: objects.WithAgent(waitFor),
	}
}

// goal is what is waited for.
type goal struct {
	verb             string // "condition", "jsonpath", "create" or "delete"
	condition, value string
	field            *fieldpath.Path // of jsonpath; without a value, it must be there
	any              bool
}

func goalOf(text string) (goal, error) {
	verb, rest, given := strings.Cut(text, "=")
	switch {
	case text == "":
		return goal{}, errors.New("wait: --for is missing: --for=condition=Ready, --for=delete")
	case text == "delete", text == "create":
		return goal{verb: text}, nil
	case verb == "jsonpath":
		return jsonPathGoal(rest)
	case verb != "condition" || !given || rest == "":
		return goal{}, fmt.Errorf("wait: --for=%s: must be one of condition=TYPE[=STATUS], jsonpath={FIELD}[=VALUE], create, delete", text)
	}
	name, value, _ := strings.Cut(rest, "=")
	return goal{verb: verb, condition: name, value: cmp.Or(value, "true")}, nil
}

// jsonPathGoal reads "{.status.phase}=Running". A "=" in the braces belongs to the field.
func jsonPathGoal(text string) (goal, error) {
	if text == "" {
		return goal{}, errors.New("wait: jsonpath expression cannot be empty")
	}
	field, value, given := strings.Cut(text, "=")
	if end := strings.LastIndex(text, "}"); end >= 0 {
		field, value = text[:end+1], text[end+1:]
		if value, given = strings.CutPrefix(value, "="); !given && value != "" {
			return goal{}, fmt.Errorf("wait: --for=jsonpath=%s: want =VALUE after {FIELD}", text)
		}
	}
	value = strings.Trim(value, `'"`)
	if given && value == "" {
		return goal{}, errors.New("wait: jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3")
	}
	path, err := fieldpath.Field(field)
	if err != nil {
		return goal{}, fmt.Errorf("wait: %w", err)
	}
	return goal{verb: "jsonpath", field: path, value: value, any: !given}, nil
}

// met says whether one object is as it should be.
func (g goal) met(raw json.RawMessage) (bool, error) {
	switch g.verb {
	case "create":
		return true, nil
	case "jsonpath":
		return g.hasValue(raw)
	}
	var o struct {
		Metadata struct {
			Generation int64 `json:"generation"`
		} `json:"metadata"`
		Status struct {
			ObservedGeneration int64                 `json:"observedGeneration"`
			Conditions         []corev1.PodCondition `json:"conditions"`
		} `json:"status"`
	}
	// A pod that is being deleted counts by its condition, as kubectl has it; /readyz leaves it out.
	return json.Unmarshal(raw, &o) == nil && slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
		seen := cmp.Or(c.ObservedGeneration, o.Status.ObservedGeneration)
		return strings.EqualFold(string(c.Type), g.condition) && strings.EqualFold(string(c.Status), g.value) &&
			(seen == 0 || seen >= o.Metadata.Generation)
	}), nil
}

// hasValue says whether the one value of the field is that of the goal. What can never be compared
// is an error, as in kubectl.
func (g goal) hasValue(raw json.RawMessage) (bool, error) {
	values, err := g.field.Values(raw)
	if err != nil || len(values) == 0 {
		return false, nil // the field may come
	}
	if len(values) > 1 {
		return false, errors.New("given jsonpath expression matches more than one value")
	}
	if g.any {
		return true, nil
	}
	switch values[0].(type) {
	case map[string]any, []any:
		return false, errors.New("jsonpath leads to a nested object or list which is not supported")
	}
	return fmt.Sprint(values[0]) == g.value, nil
}

func waitFor(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	g, err := goalOf(cmd.String("for"))
	if err != nil {
		return err
	}
	if err := nameOnly(cmd); err != nil {
		return err
	}
	all, err := waited(ctx, cmd, c)
	if err != nil {
		return err
	}
	timeout := cmd.Duration("timeout")
	if timeout < 0 {
		timeout = longTime
	}
	ctx, cancel := context.WithTimeout(ctx, max(timeout, time.Second))
	defer cancel()
	for _, o := range all {
		seen := false
		var never error
		err := objects.Until(ctx, c, o.Target, o.namespace, func(now []json.RawMessage) bool {
			seen = seen || len(now) > 0
			is := false
			if len(now) > 0 && g.verb != "delete" {
				if is, never = g.met(now[0]); never != nil {
					return true
				}
			}
			if g.verb == "delete" {
				is = !slices.ContainsFunc(now, func(raw json.RawMessage) bool { return o.uid == "" || objects.UID(raw) == o.uid })
			}
			if !is && timeout == 0 {
				cancel()
			}
			return is
		})
		switch {
		case err == nil && never != nil:
			return never
		case err == nil && !seen && o.uid == "": // was not there: kubectl says nothing
			continue
		case err == nil:
		case !seen && errors.Is(err, context.DeadlineExceeded), timeout == 0 && !seen:
			return objects.NotFound(o.Target)
		case timeout == 0 && errors.Is(err, context.Canceled):
			return fmt.Errorf("condition not met for %s/%s", o.Plural, o.Name)
		default:
			return waitError(err, o.Target)
		}
		text := " condition met"
		if cmd.String("output") == formatName {
			text = ""
		}
		if _, err := fmt.Fprintf(cmd.Root().Writer, "%s%s\n", o.Target, text); err != nil {
			return err
		}
	}
	return nil
}

// waited are the objects that are waited for: those that are named, or those that match now.
func waited(ctx context.Context, cmd *cli.Command, c *api.Client) ([]object, error) {
	if cmd.NArg() == 0 {
		return nil, errors.New("wait: want KIND/NAME")
	}
	many := cmd.Bool("all") || cmd.IsSet("selector")
	read := objects.Named
	if many {
		read = objects.Targets
	}
	wanted, err := read(cmd.Args().Slice())
	if err != nil {
		return nil, fmt.Errorf("wait: %w", err)
	}
	var all []object
	for _, t := range wanted {
		if many && t.Name != "" {
			return nil, errors.New("wait: names exclude --all and --selector")
		}
		found, err := named(ctx, c, t, objects.Query(cmd, t.Resource))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, errors.New("no matching resources found")
	}
	return all, nil
}

// waitError says what was waited for if the time was too short.
func waitError(err error, t objects.Target) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("timed out waiting for the condition on %s/%s", t.Plural, t.Name)
	}
	return err
}
