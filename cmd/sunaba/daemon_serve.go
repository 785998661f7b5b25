package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	notify "github.com/coreos/go-systemd/v22/daemon"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent"
	"github.com/sunaba-project/sunaba/cmd/sunaba/statuspage"
	"github.com/sunaba-project/sunaba/cmd/sunaba/watchdog"
	"github.com/sunaba-project/sunaba/criserver/client"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/version"
)

// Serve answers requests until ctx ends; ready is called once they are answered.
func (d *daemon) Serve(ctx context.Context, ready func()) error {
	d.startNetwork()
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(d.listener) }()
	d.logger.Info("serving", "socket", d.places.socket, "root", d.places.root, "state", d.places.state, "version", version.String())
	d.server.Recover(context.WithoutCancel(ctx))
	if err := d.images.Preload(ctx, d.preload); err != nil && ctx.Err() == nil {
		d.logger.Warn("failed to preload some images", "error", err)
	}
	if err := d.startPods(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, d.end(served))
	}
	ready()
	watching, stopWatchdog := context.WithCancel(ctx)
	defer stopWatchdog()
	d.watchdog(watching)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for {
		select {
		case err := <-served:
			return err
		case <-reload:
			d.reload(ctx)
		case <-ctx.Done():
			d.logger.Info("stopping; pods continue to run")
			return d.end(served)
		}
	}
}

// startPods runs the pods of manifests; without those it serves the commands about pods of others.
func (d *daemon) startPods(ctx context.Context) error {
	if d.pods != nil {
		if err := d.pods.Start(ctx); err != nil {
			return err
		}
		d.showPage(d.pods.All())
		return nil
	}
	w, err := podagent.Watch(podagent.WatchOptions{
		State: d.places.state, Socket: d.places.socket, StreamCertificate: d.certificate, CRI: d.server.Local(),
		Classes: d.classes.all, Logger: d.logger,
	})
	if err != nil {
		return err
	}
	d.close = append(d.close, w.Close)
	d.showPage(w.All())
	return nil
}

// showPage starts the status page, if there is one.
func (d *daemon) showPage(pods api.Agent) {
	d.page.Start(statuspage.New(statuspage.Options{Agent: pods, Manifests: d.pods != nil, CRI: d.server.Local(), Images: d.images.List}).Read)
}

// watchdog answers that of systemd, if it asks, until the context ends.
func (d *daemon) watchdog(ctx context.Context) {
	within, err := notify.SdWatchdogEnabled(false)
	if err != nil {
		d.logger.Warn("failed to read what systemd wants of a watchdog", "error", err)
	}
	if within <= 0 {
		return
	}
	go watchdog.Run(ctx, watchdog.Options{
		Within: within, Live: d.live, Logger: d.logger,
		Notify: func(state string) error { _, err := notify.SdNotify(false, state); return err },
	})
}

// live is an error if the server does not answer on its socket, or the agent does not turn. The
// network's state is not asked for: a new start would not mend it.
func (d *daemon) live(ctx context.Context) error {
	conn, err := dial.Dial(d.places.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := client.New(conn).ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{}); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	if d.pods != nil {
		return d.pods.Health()
	}
	return nil
}

// startNetwork makes what pods share of the network, once nothing of the start can fail any more.
func (d *daemon) startNetwork() {
	if n, ok := d.network.(network.Starter); ok {
		n.Start()
	}
}

// end stops what serves.
func (d *daemon) end(served <-chan error) error {
	err := d.page.Close()
	if d.pods != nil {
		err = errors.Join(err, d.pods.Close())
	}
	d.server.Stop()
	return errors.Join(err, <-served)
}

// reload reads again what an administrator may have changed.
func (d *daemon) reload(ctx context.Context) {
	if err := d.classes.reload(); err != nil {
		d.logger.Error("failed to reload RuntimeClasses, the previous ones stay", "error", err)
	} else {
		d.logger.Info("RuntimeClasses reloaded")
	}
	if d.pods == nil {
		return
	}
	if c, err := readConfig(d.places.config); err != nil {
		d.logger.Error("failed to reload the labels of the node, the previous ones stay", "error", err)
	} else {
		d.labels = c.Pods.NodeLabels
	}
	d.pods.Reload(ctx, d.labels)
}

// status tells systemd how the pods are.
func (d *daemon) status(summary string) {
	if _, err := notify.SdNotify(false, "STATUS="+summary); err != nil {
		d.logger.Warn("failed to notify systemd", "error", err)
	}
}

// Close gives back what the daemon holds in this process.
func (d *daemon) Close() error {
	var errs []error
	for i := len(d.close) - 1; i >= 0; i-- {
		errs = append(errs, d.close[i]())
	}
	return errors.Join(errs...)
}
