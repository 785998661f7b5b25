package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// startLook is how often it is looked whether a detached pod runs.
const startLook = 100 * time.Millisecond

// Detach applies the objects of the files in the agent of the server and returns when the pod runs,
// or is over. The pod belongs to the server then, also with an error after it was applied.
//
// # Errors
//
// ErrUnavailable if no server answers; ErrFailedPrecondition if it runs no pods from manifests;
// those of a manifest; an error with the reason if the pod cannot start.
func Detach(ctx context.Context, o Options) error {
	data, err := readInput(o)
	if err != nil {
		return err
	}
	set, err := parseObjects(o.File, data)
	if err != nil {
		return err
	}
	c, err := dial.Connect(ctx, o.Socket)
	if err != nil {
		return fmt.Errorf("run: --detach needs a server that runs: %w", err)
	}
	state := c.Config().StateDir
	if err := c.Close(); err != nil {
		return err
	}
	a, err := api.Connect(ctx, filepath.Join(state, api.SocketName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	if info, err := a.Server(ctx); err != nil {
		return err
	} else if !info.Manifests {
		return fmt.Errorf("run: the server on %q runs no pods from manifests: start it with [pods] manifests in its configuration, or run without --detach: %w",
			o.Socket, errdefs.ErrFailedPrecondition)
	}
	for _, file := range o.RuntimeClassFiles {
		classes, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read RuntimeClasses: %w", err)
		}
		if _, err := a.Apply(ctx, api.ApplyRequest{File: file, Data: classes}); err != nil {
			return err
		}
	}
	result, err := a.Apply(ctx, api.ApplyRequest{File: o.File, Data: data})
	if err != nil {
		return err
	}
	for _, n := range result.Notes {
		fmt.Fprintf(o.Stderr, "sunaba: warning: %s\n", n)
	}
	if err := started(ctx, a, set.key); err != nil {
		return fmt.Errorf("pod %q was applied and does not run: %w (remove it: sunaba delete -n %s pod/%s)", set.key.Name, err, set.key.Namespace, set.key.Name)
	}
	_, err = fmt.Fprintf(o.Stdout, "pod/%s\n", set.key.Name)
	return err
}

// started waits until an applied pod runs, or is over.
func started(ctx context.Context, a *api.Client, key manifest.Key) error {
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	for {
		d, err := a.Describe(ctx, key.Namespace, key.Name)
		switch {
		case errdefs.IsNotFound(err): // its agent has not taken it up yet
		case err != nil:
			return err
		case d.Pod.Status.Phase != "" && d.Pod.Status.Phase != corev1.PodPending:
			return nil
		default:
			events := make([]*corev1.Event, 0, len(d.Events))
			for i := range d.Events {
				if d.Events[i].InvolvedObject.UID == d.Pod.UID {
					events = append(events, &d.Events[i])
				}
			}
			if err := blocked(d.Pod, events); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
