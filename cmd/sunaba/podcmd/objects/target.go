package objects

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/pods/api"
)

// Target is a kind, or one object of it.
type Target struct {
	api.Resource
	Name string // "" for all
}

// String is as kubectl prints it: "pod/web".
func (t Target) String() string { return t.QualifiedName() + "/" + t.Name }

// Pod is a pod, or all of them.
func Pod(name string) Target {
	pods, _ := api.FindResource("pods")
	return Target{pods, name}
}

// Targets reads arguments: "KIND[,KIND…] [NAME…]" or "KIND/NAME…".
func Targets(args []string) ([]Target, error) {
	var all []Target
	if slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "/") }) {
		for _, arg := range args {
			kind, name, ok := strings.Cut(arg, "/")
			if !ok || name == "" || strings.Contains(name, "/") {
				return nil, fmt.Errorf("argument %q is not KIND/NAME, as others are", arg)
			}
			r, err := Resource(kind)
			if err != nil {
				return nil, err
			}
			all = append(all, Target{r, name})
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
		r, err := Resource(kind)
		if err != nil {
			return nil, err
		}
		if len(args) == 1 {
			all = append(all, Target{Resource: r})
		}
		for _, name := range args[1:] {
			if name == "" {
				return nil, fmt.Errorf("a name of %s is empty", r.Plural)
			}
			all = append(all, Target{r, name})
		}
	}
	return all, nil
}

// Resource finds a kind. Kinds of Kubernetes that Sunaba does not run yet are named as such.
func Resource(name string) (api.Resource, error) {
	if r, ok := api.FindResource(name); ok {
		return r, nil
	}
	var known []string
	for _, r := range api.Resources() {
		known = append(known, r.Plural)
	}
	return api.Resource{}, fmt.Errorf("the server doesn't have a resource type %q (it has %s)", name, strings.Join(known, ", "))
}

// Named reads arguments that must name objects.
func Named(args []string) ([]Target, error) {
	all, err := Targets(args)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.Name == "" {
			return nil, errors.New("resource(s) were provided, but no name was specified")
		}
	}
	return all, nil
}

// PodName reads the one argument of commands that take a pod: "POD" or "pod/POD".
func PodName(arg string) (string, error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok {
		return arg, nil
	}
	r, err := Resource(kind)
	if err != nil {
		return "", err
	}
	if r.Singular != "pod" || name == "" {
		return "", fmt.Errorf("argument %q is not POD or pod/POD", arg)
	}
	return name, nil
}

// NotFound is kubectl's text for an object that there is not.
func NotFound(t Target) error { return fmt.Errorf("%s %q not found", t.Plural, t.Name) }
