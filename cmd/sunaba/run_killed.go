package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	pod "github.com/sunaba-project/sunaba/cmd/sunaba/run"
	"github.com/sunaba-project/sunaba/host/durable"
)

// serverPrefix starts the names of the folders of servers that `sunaba run` starts for one pod.
const serverPrefix = "sunaba-"

// killedServers are the folders of such servers whose process was killed.
func killedServers() ([]string, error) {
	return pod.KilledServers(serverPrefix+"[0-9]*", func(dir string) string { return filepath.Join(embeddedPlaces(dir).root, "lock") })
}

// clearServers starts the server of each run again that was killed, has it remove the pod, and
// removes its network and folder.
func clearServers(ctx context.Context, c config, out io.Writer, logger *slog.Logger) error {
	dirs, err := killedServers()
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		held, err := pod.HoldServer(dir)
		if errors.Is(err, durable.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
			continue // another command removes it
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(out, "sunaba: removing %s, the server of a sunaba run that was killed\n", dir)
		errs = append(errs, embedded(ctx, c, dir, logger, func(socket string) error { return clearServer(ctx, socket, out) }), held.Close())
	}
	return errors.Join(errs...)
}

func clearServer(ctx context.Context, socket string, out io.Writer) error {
	client, err := dial.Connect(ctx, socket)
	if err != nil {
		return err
	}
	defer client.Close()
	say := func(format string, args ...any) { fmt.Fprintf(out, "sunaba: "+format+"\n", args...) }
	return pod.Clear(ctx, client, socket, say)
}

// noPods is an error if the server in a folder has pods.
func noPods(ctx context.Context, p places) error {
	client, err := dial.Connect(ctx, p.socket)
	if err != nil {
		return err
	}
	defer client.Close()
	left, err := client.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return dial.Native(err)
	}
	if n := len(left.GetItems()); n > 0 {
		return fmt.Errorf("%d pods are left in it: remove them with crictl through a server with --root %s --state %s", n, p.root, p.state)
	}
	return nil
}
