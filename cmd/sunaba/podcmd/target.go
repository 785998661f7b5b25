package podcmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/pods/api"
)

// target is a kind, or one object of it.
type target struct {
	api.Resource
	name string // "" for all
}

// String is as kubectl prints it: "pod/web".
func (t target) String() string { return t.QualifiedName() + "/" + t.name }

// targets reads arguments: "KIND[,KIND…] [NAME…]" or "KIND/NAME…".
func targets(args []string) ([]target, error) {
	var all []target
	if slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "/") }) {
		for _, arg := range args {
			kind, name, ok := strings.Cut(arg, "/")
			if !ok || name == "" || strings.Contains(name, "/") {
				return nil, fmt.Errorf("argument %q is not KIND/NAME, as others are", arg)
			}
			r, err := resource(kind)
			if err != nil {
				return nil, err
			}
			all = append(all, target{r, name})
		}
		return all, nil
	}
	if len(args) == 0 {
		return nil, nil
	}
	kinds := strings.Split(args[0], ",")
	if args[0] == "all" {
		kinds = []string{"pods"}
	}
	for _, kind := range kinds {
		r, err := resource(kind)
		if err != nil {
			return nil, err
		}
		if len(args) == 1 {
			all = append(all, target{Resource: r})
		}
		for _, name := range args[1:] {
			if name == "" {
				return nil, fmt.Errorf("a name of %s is empty", r.Plural)
			}
			all = append(all, target{r, name})
		}
	}
	return all, nil
}

// resource finds a kind. Kinds of Kubernetes that Sunaba does not run yet are named as such.
func resource(name string) (api.Resource, error) {
	if r, ok := api.FindResource(name); ok {
		return r, nil
	}
	var known []string
	for _, r := range api.Resources() {
		known = append(known, r.Plural)
	}
	return api.Resource{}, fmt.Errorf("the server doesn't have a resource type %q (it has %s)", name, strings.Join(known, ", "))
}

// named reads arguments that must name objects.
func named(args []string) ([]target, error) {
	all, err := targets(args)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.name == "" {
			return nil, fmt.Errorf("%s: a name is missing (or --all, or --selector)", t.Plural)
		}
	}
	return all, nil
}

// podName reads the one argument of commands that take a pod: "POD" or "pod/POD".
func podName(arg string) (string, error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok {
		return arg, nil
	}
	r, err := resource(kind)
	if err != nil {
		return "", err
	}
	if r.Singular != "pod" || name == "" {
		return "", fmt.Errorf("argument %q is not POD or pod/POD", arg)
	}
	return name, nil
}

// notFound is kubectl's text for an object that there is not.
func notFound(t target) error { return fmt.Errorf("%s %q not found", t.Plural, t.name) }
