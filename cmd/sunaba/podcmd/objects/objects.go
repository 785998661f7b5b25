// Package objects is how the commands for pods from manifests name objects, with kubectl's words and
// flags, and how they find them at an agent.
package objects

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/api"
)

const defaultNamespace = "default"

// NamespaceFlag is --namespace.
func NamespaceFlag() cli.Flag {
	return &cli.StringFlag{Name: "namespace", Aliases: []string{"n"}, Usage: "`NAMESPACE` of the objects", Value: defaultNamespace}
}

// AllNamespacesFlag is --all-namespaces.
func AllNamespacesFlag() cli.Flag {
	return &cli.BoolFlag{Name: "all-namespaces", Aliases: []string{"A"}, Usage: "objects of all namespaces"}
}

// SelectorFlag is --selector.
func SelectorFlag() cli.Flag {
	return &cli.StringFlag{Name: "selector", Aliases: []string{"l"}, Usage: "only objects whose labels match `SELECTOR`: a=b,c!=d,e in (f,g)"}
}

// FieldSelectorFlag is --field-selector.
func FieldSelectorFlag() cli.Flag {
	return &cli.StringFlag{Name: "field-selector", Usage: "only objects whose fields match `SELECTOR`: status.phase=Running"}
}

// StateFlag is --state, the folder in which the agent's socket is.
func StateFlag(state string) cli.Flag {
	return &cli.StringFlag{Name: "state", Usage: "`DIR` of the server's state, in which the agent's socket is", Value: state}
}

// shortLived is how far the heap of a command grows before it is collected, in percent: to 20 MiB,
// more than a list of 100 pods takes. Most commands have ended by then.
const shortLived = 500

// WithAgent calls an action with the agent of --state.
func WithAgent(action func(context.Context, *cli.Command, *api.Client) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) (err error) {
		if n := cmd.String("namespace"); cmd.IsSet("namespace") && n == "" {
			return fmt.Errorf("%s: --namespace is empty", cmd.Name)
		}
		c, err := api.Connect(ctx, filepath.Join(cmd.String("state"), api.SocketName))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		debug.SetGCPercent(shortLived)
		return action(ctx, cmd, c)
	}
}

// Query is what a command's flags say about which objects of a kind are wanted.
func Query(cmd *cli.Command, r api.Resource) api.Query {
	q := api.Query{LabelSelector: cmd.String("selector"), FieldSelector: cmd.String("field-selector")}
	if r.Namespaced && !cmd.Bool("all-namespaces") {
		q.Namespace = cmd.String("namespace")
	}
	return q
}

// FindPod asks for a pod.
func FindPod(ctx context.Context, c *api.Client, namespace, name string) (*corev1.Pod, error) {
	t := Pod(name)
	pods, err := api.Objects[corev1.Pod](ctx, c, t.Resource, api.Query{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, NotFound(t)
	}
	return &pods[0], nil
}

// ContainerNames are the names of a pod's containers: init ones, regular ones and ephemeral ones.
func ContainerNames(p *corev1.Pod) []string {
	var names []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}
