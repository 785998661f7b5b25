package podcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/foreign"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

func deleteCommand() *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "delete objects that were applied",
		ArgsUsage: "KIND NAME... | KIND/NAME...",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), objects.SelectorFlag(), filesFlag("`FILE` or folder whose objects are deleted; - is stdin"),
			&cli.BoolFlag{Name: "all", Usage: "all objects of the kind in the namespace"},
			&cli.BoolFlag{Name: "manifests", Usage: "with --all and no kind: end all pods, also those of files, until the server is started again; files and applied objects stay"},
			&cli.Int64Flag{Name: "grace-period", Usage: "`SECONDS` that a pod has to end; -1 is its own", Value: -1},
			&cli.BoolFlag{Name: "now", Usage: "the same as --grace-period=1"},
			&cli.BoolFlag{Name: "force", Usage: "end pods at once, with --grace-period=0"},
			&cli.BoolFlag{Name: "wait", Usage: "wait until the objects are deleted", Value: true},
			&cli.DurationFlag{Name: "timeout", Usage: "`TIME` to wait; 0 is as long as it takes"},
			outputFlag("print as `FORMAT`: name"),
			&cli.BoolFlag{Name: "ignore-not-found", Usage: "an object that is not there is no error"},
		},
		Action: objects.WithAgent(deleteAll),
	}
}

// grace is the grace period that the flags ask for, nil for the pods' own. Combinations are
// kubectl's.
func grace(cmd *cli.Command) (*int64, error) {
	seconds, now, force := cmd.Int64("grace-period"), cmd.Bool("now"), cmd.Bool("force")
	switch {
	case now && cmd.IsSet("grace-period"):
		return nil, errors.New("delete: --now and --grace-period cannot be specified together")
	case force && now, force && seconds > 0:
		return nil, errors.New("delete: --force and --grace-period greater than 0 cannot be specified together")
	case force:
		seconds = 0
	case now, seconds == 0: // 0 needs --force
		seconds = 1
	case seconds < 0:
		return nil, nil
	}
	return &seconds, nil
}

// object is one that there is.
type object struct {
	objects.Target
	namespace string
	uid       string
}

func deleteAll(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	g, err := grace(cmd)
	if err != nil {
		return err
	}
	if err := nameOnly(cmd); err != nil {
		return err
	}
	if cmd.Duration("timeout") < 0 {
		return fmt.Errorf("delete: --timeout %s is less than 0", cmd.Duration("timeout"))
	}
	if cmd.Bool("manifests") {
		return deleteManifests(ctx, cmd, c, g)
	}
	found, errs := doomed(ctx, cmd, c)
	// A claim is in use until its pods are gone.
	claim := func(o object) bool { return o.Kind == manifest.KindClaim }
	errs = append(errs, deleteEach(ctx, cmd, c, g, slices.DeleteFunc(slices.Clone(found), claim)))
	claims := slices.DeleteFunc(found, func(o object) bool { return !claim(o) })
	return errors.Join(append(errs, deleteEach(ctx, cmd, c, g, claims))...)
}

// deleteEach orders deletions and, with --wait, waits for them.
func deleteEach(ctx context.Context, cmd *cli.Command, c *api.Client, g *int64, all []object) error {
	var ordered []object
	var errs []error
	for _, o := range all {
		err := c.Delete(ctx, api.DeleteRequest{
			Key: manifest.Key{Kind: o.Kind, Namespace: o.namespace, Name: o.Name}, UID: types.UID(o.uid), GraceSeconds: g,
		})
		if errdefs.IsNotFound(err) && cmd.Bool("ignore-not-found") {
			continue
		}
		if errdefs.IsNotFound(err) && o.uid == "" {
			err = objects.NotFound(o.Target)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ordered = append(ordered, o)
		if err := tellDeleted(cmd, o, g); err != nil {
			return err
		}
	}
	if cmd.Bool("wait") {
		errs = append(errs, waitGone(ctx, c, ordered, cmd.Duration("timeout")))
	}
	return errors.Join(errs...)
}

// tellDeleted prints that the deletion of an object was ordered.
func tellDeleted(cmd *cli.Command, o object, grace *int64) error {
	word := "deleted"
	if grace != nil && *grace == 0 {
		word = "force deleted"
	}
	text := fmt.Sprintf("%s %q %s", o.QualifiedName(), o.Name, word)
	if cmd.String("output") == formatName {
		text = o.String()
	} else if o.Namespaced {
		text += " from " + o.namespace + " namespace"
	}
	_, err := fmt.Fprintln(cmd.Root().Writer, text)
	return err
}

// deleteManifests ends all pods of manifests, of all namespaces, before Sunaba is taken off the
// machine.
func deleteManifests(ctx context.Context, cmd *cli.Command, c *api.Client, grace *int64) error {
	if !cmd.Bool("all") || cmd.NArg() > 0 || cmd.IsSet("filename") || cmd.IsSet("selector") || cmd.IsSet("namespace") {
		return errors.New("delete: --manifests wants --all, and neither names, -f, -l nor -n: it ends all pods")
	}
	pods, err := api.Objects[corev1.Pod](ctx, c, objects.Pod("").Resource, api.Query{})
	if err != nil {
		return err
	}
	var found []object
	for _, p := range pods {
		if !foreign.Is(&p) {
			found = append(found, object{objects.Pod(p.Name), p.Namespace, string(p.UID)})
		}
	}
	if err := c.Delete(ctx, api.DeleteRequest{Manifests: true, GraceSeconds: grace}); err != nil {
		return err
	}
	for _, o := range found {
		if err := tellDeleted(cmd, o, grace); err != nil {
			return err
		}
	}
	if !cmd.Bool("wait") {
		return nil
	}
	return waitGone(ctx, c, found, cmd.Duration("timeout"))
}

// doomed are the objects that the arguments, the selector or the files mean.
func doomed(ctx context.Context, cmd *cli.Command, c *api.Client) ([]object, []error) {
	files, many := len(cmd.StringSlice("filename")) > 0, cmd.Bool("all") || cmd.IsSet("selector")
	switch {
	case files && (many || cmd.NArg() > 0):
		return nil, []error{errors.New("delete: -f excludes names, --all and --selector")}
	case files:
		return inFiles(ctx, cmd, c)
	case cmd.NArg() == 0:
		return nil, []error{errors.New("delete: want KIND/NAME, or -f FILE")}
	case cmd.Bool("all") && cmd.IsSet("selector"):
		return nil, []error{errors.New("delete: setting 'all' parameter but found a non empty selector")}
	}
	read := objects.Named
	if many {
		read = objects.Targets
	}
	wanted, err := read(cmd.Args().Slice())
	if err != nil {
		return nil, []error{fmt.Errorf("delete: %w", err)}
	}
	var all []object
	var errs []error
	for _, t := range wanted {
		if many && t.Name != "" {
			return nil, []error{errors.New("delete: name cannot be provided when a selector is specified")}
		}
		found, err := named(ctx, c, t, objects.Query(cmd, t.Resource))
		all, errs = append(all, found...), appendError(errs, err)
	}
	return all, errs
}

func appendError(errs []error, err error) []error {
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// named is find, also for what has a name and is not listed, such as an applied Pod for another
// node.
func named(ctx context.Context, c *api.Client, t objects.Target, q api.Query) ([]object, error) {
	found, err := find(ctx, c, t, q)
	if err == nil && len(found) == 0 && t.Name != "" {
		found = []object{{Target: t, namespace: q.Namespace}}
	}
	return found, err
}

// find asks for the objects of a target.
func find(ctx context.Context, c *api.Client, t objects.Target, q api.Query) ([]object, error) {
	q.Name = t.Name
	all, err := api.Objects[metav1.PartialObjectMetadata](ctx, c, t.Resource, q)
	if err != nil {
		return nil, err
	}
	var found []object
	for _, m := range all {
		found = append(found, object{objects.Target{Resource: t.Resource, Name: m.Name}, m.Namespace, string(m.UID)})
	}
	return found, nil
}

// inFiles are the objects of manifests. They need not be valid to be deleted.
func inFiles(ctx context.Context, cmd *cli.Command, c *api.Client) ([]object, []error) {
	docs, err := documents(cmd)
	if err != nil {
		return nil, []error{err}
	}
	var all []object
	var errs []error
	for _, d := range docs {
		wanted, err := objectsOf(d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, o := range wanted {
			if o.Namespaced && (o.namespace == "" || cmd.IsSet("namespace")) {
				o.namespace = cmd.String("namespace")
			}
			found, err := named(ctx, c, o.Target, api.Query{Namespace: o.namespace})
			all, errs = append(all, found...), appendError(errs, err)
		}
	}
	return all, errs
}

// objectsOf names the objects of a manifest, and of Lists in it.
func objectsOf(d document) ([]object, error) {
	var all []object
	for _, doc := range runtimeclass.Documents(d.file, d.data) {
		data, err := yaml.YAMLToJSON(doc.Data)
		if err != nil {
			return nil, fmt.Errorf("delete: %s: %w", d.file, err)
		}
		parts := []json.RawMessage{data}
		for len(parts) > 0 {
			var o struct {
				metav1.PartialObjectMetadata `json:",inline"`
				Items                        []json.RawMessage `json:"items"`
			}
			if err := json.Unmarshal(parts[0], &o); err != nil {
				return nil, fmt.Errorf("delete: %s: line %d: %w", d.file, doc.Line, err)
			}
			if parts = parts[1:]; o.Kind == "List" {
				parts = slices.Concat(o.Items, parts)
				continue
			}
			r, err := objects.Resource(o.Kind)
			if err != nil {
				return nil, fmt.Errorf("delete: %s: line %d: %w", d.file, doc.Line, err)
			}
			if o.Name == "" {
				return nil, fmt.Errorf("delete: %s: line %d: metadata.name is missing", d.file, doc.Line)
			}
			all = append(all, object{Target: objects.Target{Resource: r, Name: o.Name}, namespace: o.Namespace})
		}
	}
	return all, nil
}

// waitGone waits until objects are deleted; those of the same name that come after them do not
// count.
func waitGone(ctx context.Context, c *api.Client, all []object, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	for _, o := range all {
		err := objects.Until(ctx, c, o.Target, o.namespace, func(now []json.RawMessage) bool {
			return !slices.ContainsFunc(now, func(raw json.RawMessage) bool { return objects.UID(raw) == o.uid })
		})
		if err != nil {
			return waitError(err, o.Target)
		}
	}
	return nil
}
