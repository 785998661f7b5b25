package podcmd

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/completion"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
)

// defaultNamespace is that of a command line that names none.
const defaultNamespace = "default"

// Complete completes a word of a command of this package, also with the names that the server
// tells. Without a server it suggests nothing.
func (p Places) Complete(ctx context.Context, r completion.Request) []completion.Candidate {
	if r.Command.Category != category {
		return nil
	}
	n := &names{state: cmp.Or(r.Flags["state"], p.State), namespace: cmp.Or(r.Flags["namespace"], defaultNamespace)}
	if r.Flag != "" {
		return n.flag(ctx, r)
	}
	switch first := len(r.Args) == 0; r.Command.Name {
	case "get", "describe", "delete", "wait":
		return n.targets(ctx, r)
	case "restart":
		return n.of(ctx, objects.Pod(""), "")
	case "cp":
		return n.of(ctx, objects.Pod(""), ":")
	case "logs":
		if !first {
			return n.containers(ctx, r.Args[0])
		}
		return n.of(ctx, objects.Pod(""), "")
	case "exec", "attach", "port-forward", "debug":
		if first {
			return n.of(ctx, objects.Pod(""), "")
		}
	}
	return nil
}

// names asks a server for names.
type names struct{ state, namespace string }

func (n *names) flag(ctx context.Context, r completion.Request) []completion.Candidate {
	switch r.Flag {
	case "namespace":
		return n.namespaces(ctx)
	case "container", "target":
		if len(r.Args) > 0 {
			return n.containers(ctx, r.Args[0])
		}
	case "output":
		return completion.Names(wide, formatYAML, formatJSON, formatName, formatJSONPath+"=", formatJSONPath+"-file=", formatColumns+"=")
	case "types":
		return completion.Names(corev1.EventTypeNormal, corev1.EventTypeWarning)
	case "dry-run":
		return completion.Names("client", "server", "none")
	case "for":
		if r.Command.Name == "wait" {
			return completion.Names("condition=Ready", "create", "delete", "jsonpath=")
		}
		return n.targets(ctx, r)
	}
	return nil
}

// targets are kinds, names of a kind that was given, or KIND/NAME.
func (n *names) targets(ctx context.Context, r completion.Request) []completion.Candidate {
	if kind, _, ok := strings.Cut(r.Word, "/"); ok {
		resource, known := api.FindResource(kind)
		if !known {
			return nil
		}
		all := n.of(ctx, objects.Target{Resource: resource}, "")
		for i := range all {
			all[i].Text = kind + "/" + all[i].Text
		}
		return all
	}
	if len(r.Args) > 0 && r.Flag == "" && !strings.Contains(r.Args[0], "/") {
		resource, known := api.FindResource(r.Args[0])
		if !known {
			return nil
		}
		return n.of(ctx, objects.Target{Resource: resource}, "")
	}
	var all []completion.Candidate
	for _, resource := range api.Resources() {
		if len(r.Args) > 0 || r.Flag != "" {
			all = append(all, completion.Candidate{Text: resource.Singular + "/"})
			continue
		}
		all = append(all, completion.Candidate{Text: resource.Plural, Description: strings.Join(resource.Short, ", ")})
	}
	return all
}

func (n *names) list(ctx context.Context, r api.Resource, q api.Query) []metav1.PartialObjectMetadata {
	c, err := api.Connect(ctx, filepath.Join(n.state, api.SocketName))
	if err != nil {
		return nil
	}
	defer c.Close()
	all, err := api.Objects[metav1.PartialObjectMetadata](ctx, c, r, q)
	if err != nil {
		return nil
	}
	return all
}

// of are the names of a kind's objects, with what stands behind each.
func (n *names) of(ctx context.Context, t objects.Target, behind string) []completion.Candidate {
	q := api.Query{}
	if t.Namespaced {
		q.Namespace = n.namespace
	}
	var all []completion.Candidate
	for _, o := range n.list(ctx, t.Resource, q) {
		if o.Name != "" { // a manifest's file has none
			all = append(all, completion.Candidate{Text: o.Name + behind})
		}
	}
	return all
}

func (n *names) namespaces(ctx context.Context) []completion.Candidate {
	var all []string
	for _, r := range api.Resources() {
		if !r.Namespaced || r.Kind == api.KindEvent {
			continue
		}
		for _, o := range n.list(ctx, r, api.Query{}) {
			all = append(all, o.Namespace)
		}
	}
	slices.Sort(all)
	return completion.Names(slices.Compact(all)...)
}

func (n *names) containers(ctx context.Context, arg string) []completion.Candidate {
	name, err := objects.PodName(arg)
	if err != nil {
		return nil
	}
	c, err := api.Connect(ctx, filepath.Join(n.state, api.SocketName))
	if err != nil {
		return nil
	}
	defer c.Close()
	pod, err := objects.FindPod(ctx, c, n.namespace, name)
	if err != nil {
		return nil
	}
	return completion.Names(objects.ContainerNames(pod)...)
}
