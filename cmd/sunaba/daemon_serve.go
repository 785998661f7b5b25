package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	notify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent"
	"github.com/sunaba-project/sunaba/criserver/network"
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
		return d.pods.Start(ctx)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	w, err := podagent.Watch(podagent.WatchOptions{
		State: d.places.state, Socket: d.places.socket, StreamCertificate: d.streamCertificate, CRI: d.server.Local(),
		NodeName: strings.ToLower(host), Classes: d.classes.all, Logger: d.logger,
	})
	if err != nil {
		return err
	}
	d.close = append(d.close, w.Close)
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
	var err error
	if d.pods != nil {
		err = d.pods.Close()
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
