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
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/describe"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

func describeCommand() *cli.Command {
	return &cli.Command{
		Name:      "describe",
		Usage:     "say all that is known of objects, with what is waited for and the last events",
		ArgsUsage: "KIND [NAME...] | KIND/NAME...",
		Flags:     []cli.Flag{objects.NamespaceFlag(), objects.AllNamespacesFlag(), objects.SelectorFlag(), &cli.BoolFlag{Name: "show-events", Usage: "print events of pods and manifests", Value: true}},
		Action:    objects.WithAgent(describeAll),
	}
}

func describeAll(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	wanted, err := objects.Targets(cmd.Args().Slice())
	if err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	if len(wanted) == 0 {
		return errors.New("describe: want a kind, or KIND/NAME")
	}
	if wanted, err = prefixed(ctx, cmd, c, wanted); err != nil {
		return err
	}
	// A Secret's values are asked for to count their bytes.
	groups, missing, err := fetch(ctx, cmd, c, wanted, true)
	if err != nil {
		return err
	}
	out, printed := cmd.Root().Writer, 0
	for _, g := range groups {
		for _, raw := range g.items {
			if printed++; printed > 1 {
				if _, err := io.WriteString(out, "\n\n"); err != nil {
					return err
				}
			}
			if err := describeOne(ctx, c, out, g.Resource, raw, cmd.Bool("show-events")); err != nil {
				return err
			}
		}
	}
	if len(missing) > 0 {
		return missing.err()
	}
	if printed == 0 {
		fmt.Fprintln(cmd.Root().ErrWriter, "No resources found")
	}
	return nil
}

// prefixed replaces names that there are not by those that start with them, as kubectl does.
func prefixed(ctx context.Context, cmd *cli.Command, c *api.Client, wanted []objects.Target) ([]objects.Target, error) {
	var all []objects.Target
	for _, t := range wanted {
		found, err := find(ctx, c, objects.Target{Resource: t.Resource}, objects.Query(cmd, t.Resource))
		if err != nil {
			return nil, err
		}
		named := func(o object) bool { return o.Name == t.Name }
		before := len(all)
		for _, o := range found {
			if t.Name != "" && strings.HasPrefix(o.Name, t.Name) && !slices.ContainsFunc(found, named) {
				all = append(all, o.Target)
			}
		}
		if len(all) == before {
			all = append(all, t)
		}
	}
	return all, nil
}

func describeOne(ctx context.Context, c *api.Client, out io.Writer, r api.Resource, raw json.RawMessage, events bool) error {
	now := time.Now()
	switch r.Kind {
	case manifest.KindPod:
		var pod metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &pod); err != nil {
			return fmt.Errorf("read pod: %w", err)
		}
		d, err := c.Describe(ctx, pod.Namespace, pod.Name)
		if err != nil {
			return err
		}
		if d.Pod == nil {
			return fmt.Errorf("describe pod %q: the server's answer has no pod", pod.Name)
		}
		return describe.Pod(out, d, now, events, guestNotes(ctx, c, d.Pod)...)
	case manifest.KindConfigMap:
		return as(raw, func(v *corev1.ConfigMap) error { return describe.ConfigMap(out, v) })
	case manifest.KindSecret:
		return as(raw, func(v *corev1.Secret) error { return describe.Secret(out, v) })
	case manifest.KindClaim:
		return as(raw, func(v *corev1.PersistentVolumeClaim) error { return describe.Claim(out, v) })
	case manifest.KindRuntimeClass:
		return as(raw, func(v *nodev1.RuntimeClass) error { return describe.RuntimeClass(out, v) })
	case api.KindNode:
		return as(raw, func(v *corev1.Node) error { return describeNode(ctx, c, out, v, now) })
	case api.KindEvent:
		return as(raw, func(v *corev1.Event) error { return describe.Event(out, v, now) })
	case api.KindManifest:
		return as(raw, func(v *api.Manifest) error { return describeManifest(ctx, c, out, v, now, events) })
	}
	return fmt.Errorf("describe %s: there is nothing to say", r.Plural)
}

// describeManifest asks for the events of a manifest file too.
func describeManifest(ctx context.Context, c *api.Client, out io.Writer, m *api.Manifest, now time.Time, events bool) error {
	var about []corev1.Event
	if r, _ := api.FindResource("events"); events {
		all, err := api.Objects[corev1.Event](ctx, c, r, api.Query{})
		if err != nil {
			return err
		}
		about = describe.ManifestEvents(all, m.File)
	}
	return describe.Manifest(out, m, about, now)
}

// describeNode asks for the pods and events of a node too.
func describeNode(ctx context.Context, c *api.Client, out io.Writer, n *corev1.Node, now time.Time) error {
	kind := func(name string) api.Resource { r, _ := api.FindResource(name); return r }
	pods, err := api.Objects[corev1.Pod](ctx, c, kind("pods"), api.Query{})
	if err != nil {
		return err
	}
	events, err := api.Objects[corev1.Event](ctx, c, kind("events"), api.Query{})
	if err != nil {
		return err
	}
	return describe.Node(out, n, pods, describe.NodeEvents(events, n.Name), now)
}

func as[T any](raw json.RawMessage, fn func(*T) error) error {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	return fn(&v)
}
