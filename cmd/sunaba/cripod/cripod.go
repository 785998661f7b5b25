// Package cripod is the client behind `sunaba ps`, `stop` and `rm`: containers and pods as the CRI
// server has them, whoever made them.
package cripod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/pods/foreign"
)

// shortest is the least number of characters of an id that name its pod or container.
const shortest = 4

// node is what a server has.
type node struct {
	pods       []*runtime.PodSandbox
	containers []*runtime.Container
	pod        map[string]*runtime.PodSandbox // by id
}

func read(ctx context.Context, c *dial.Client) (*node, error) {
	pods, err := c.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", dial.Native(err))
	}
	containers, err := c.ListContainers(ctx, &runtime.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", dial.Native(err))
	}
	n := &node{pods: pods.GetItems(), containers: containers.GetContainers(), pod: map[string]*runtime.PodSandbox{}}
	for _, p := range n.pods {
		n.pod[p.GetId()] = p
	}
	return n, nil
}

// target is a pod or a container that an argument names.
type target struct {
	pod       *runtime.PodSandbox
	container *runtime.Container // nil for the whole pod
}

// name is what a user calls it.
func (t target) name() string {
	if t.container != nil {
		return fmt.Sprintf("container %q of pod %q", t.container.GetMetadata().GetName(), podName(t.pod))
	}
	return fmt.Sprintf("pod %q", podName(t.pod))
}

func podName(p *runtime.PodSandbox) string {
	m := p.GetMetadata()
	if m.GetNamespace() == "" || m.GetNamespace() == "default" {
		return m.GetName()
	}
	return m.GetNamespace() + "/" + m.GetName()
}

// find is what an argument names: a pod by "[NAMESPACE/]NAME" or its id, a container by its id. The
// first characters of an id are enough. A name may be that of several sandboxes of one pod.
func (n *node) find(arg string) ([]target, error) {
	var found []target
	namespace, name, cut := strings.Cut(arg, "/")
	if !cut {
		namespace, name = "default", arg
	}
	for _, p := range n.pods {
		m := p.GetMetadata()
		if m.GetName() == name && (m.GetNamespace() == namespace || !cut && m.GetNamespace() == "") {
			found = append(found, target{pod: p})
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	if len(arg) >= shortest {
		for _, p := range n.pods {
			if strings.HasPrefix(p.GetId(), arg) {
				found = append(found, target{pod: p})
			}
		}
		for _, c := range n.containers {
			if strings.HasPrefix(c.GetId(), arg) {
				found = append(found, target{n.pod[c.GetPodSandboxId()], c})
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no pod or container is called %q (a pod has a name, NAMESPACE/NAME or an id, a container an id: see \"sunaba ps -a\")", arg)
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("%d ids start with %q", len(found), arg)
}

// mayEnd refuses what somebody else manages, who would make it again.
func (t target) mayEnd(force bool) error {
	switch maker := foreign.Made(t.pod.GetAnnotations()); {
	case maker == foreign.ByManifest:
		return fmt.Errorf("%s is of a manifest, whose pods are made again: \"sunaba delete\", or take it out of its file: %w", t.name(), errdefs.ErrFailedPrecondition)
	case maker == foreign.ByKubelet && !force:
		return fmt.Errorf("%s is a kubelet's, which makes it again: delete it in the cluster, or give --force: %w", t.name(), errdefs.ErrFailedPrecondition)
	}
	return nil
}

// Options say how to end what arguments name.
type Options struct {
	// Grace is how many seconds containers have to end by themselves.
	Grace int64
	// Force ends what a kubelet manages too, and, for Remove, what runs.
	Force bool
	// Done is told what was ended.
	Done func(arg string)
}

// Stop stops pods with all their containers, or containers. All arguments are looked up before
// anything is stopped.
func Stop(ctx context.Context, c *dial.Client, args []string, o Options) error {
	return each(ctx, c, args, o, func(n *node, t target) error { return stop(ctx, c, n, t, o.Grace) })
}

// Remove removes pods with all their containers, or containers.
//
// # Errors
//
// ErrFailedPrecondition for one that runs, without Force.
func Remove(ctx context.Context, c *dial.Client, args []string, o Options) error {
	return each(ctx, c, args, o, func(n *node, t target) error {
		if n.runs(t) && !o.Force {
			return fmt.Errorf("%s runs: stop it first, or give --force: %w", t.name(), errdefs.ErrFailedPrecondition)
		}
		if err := stop(ctx, c, n, t, o.Grace); err != nil {
			return err
		}
		var err error
		if t.container != nil {
			_, err = c.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: t.container.GetId()})
		} else {
			_, err = c.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: t.pod.GetId()})
		}
		if err != nil {
			return fmt.Errorf("remove %s: %w", t.name(), dial.Native(err))
		}
		return nil
	})
}

func each(ctx context.Context, c *dial.Client, args []string, o Options, do func(*node, target) error) error {
	n, err := read(ctx, c)
	if err != nil {
		return err
	}
	found := make([][]target, len(args))
	for i, arg := range args {
		if found[i], err = n.find(arg); err != nil {
			return err
		}
		for _, t := range found[i] {
			if err := t.mayEnd(o.Force); err != nil {
				return err
			}
		}
	}
	var errs []error
	for i, arg := range args {
		var failed []error
		for _, t := range found[i] {
			failed = append(failed, do(n, t))
		}
		if err := errors.Join(failed...); err != nil {
			errs = append(errs, err)
			continue
		}
		o.Done(arg)
	}
	return errors.Join(errs...)
}

// of are the containers of a target.
func (n *node) of(t target) []*runtime.Container {
	if t.container != nil {
		return []*runtime.Container{t.container}
	}
	return slices.DeleteFunc(slices.Clone(n.containers), func(c *runtime.Container) bool { return c.GetPodSandboxId() != t.pod.GetId() })
}

func (n *node) runs(t target) bool {
	if t.container == nil && t.pod.GetState() == runtime.PodSandboxState_SANDBOX_READY {
		return true
	}
	return slices.ContainsFunc(n.of(t), func(c *runtime.Container) bool { return c.GetState() == runtime.ContainerState_CONTAINER_RUNNING })
}

// stop gives all containers of a target their grace at the same time, then stops the pod.
func stop(ctx context.Context, c *dial.Client, n *node, t target, grace int64) error {
	containers := n.of(t)
	errs := make(chan error, len(containers))
	for _, one := range containers {
		go func() {
			_, err := c.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: one.GetId(), Timeout: grace})
			if err = dial.Native(err); err != nil && !errdefs.IsNotFound(err) {
				err = fmt.Errorf("stop %s: %w", target{t.pod, one}.name(), err)
			} else {
				err = nil
			}
			errs <- err
		}()
	}
	var failed []error
	for range containers {
		failed = append(failed, <-errs)
	}
	if err := errors.Join(failed...); err != nil || t.container != nil {
		return err
	}
	if _, err := c.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: t.pod.GetId()}); err != nil {
		return fmt.Errorf("stop %s: %w", t.name(), dial.Native(err))
	}
	return nil
}
