package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent/setup"
	pod "github.com/sunaba-project/sunaba/cmd/sunaba/run"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
	"github.com/sunaba-project/sunaba/cmd/sunaba/wasm"
	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/check"
	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/api"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "compare what is on record with what is on the machine",
		ArgsUsage: " ",
		Description: "Prints what is not as it should be and what to do about it, and ends with 1 if there is anything. The server may run or\n" +
			"not. Nothing is changed, unless --repair is given: then, with the server stopped, what a start of the server cleans up\n" +
			"is cleaned up, and what nothing owns is removed. Pods that run are left alone.",
		Flags: append(append(placeFlags()[:3:3],
			&cli.BoolFlag{Name: "repair", Usage: "remove what nothing owns; the server must be stopped"}), logFlags()...),
		Action: checkNode,
	}
}

func checkNode(ctx context.Context, cmd *cli.Command) error {
	if err := checkRootAlone(cmd); err != nil {
		return err
	}
	c, logger, err := quietConfig(cmd)
	if err != nil {
		return err
	}
	p := places{root: cmd.String("root"), state: cmd.String("state")}
	if err := p.resolve(); err != nil {
		return err
	}
	n := &checked{config: c, places: p, out: cmd.Root().Writer, logger: logger}
	if cmd.Bool("repair") {
		return n.repair(ctx)
	}
	return n.check(ctx)
}

// checked is the node of a check.
type checked struct {
	config config
	places places
	out    io.Writer
	logger *slog.Logger
}

// hold keeps servers from starting until release is called. served says that one has the folders
// already.
func (n *checked) hold() (release func(), served bool, err error) {
	var files []*os.File
	release = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, dir := range []string{n.places.root, n.places.state} {
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a reboot took the folder of the state
		}
		if err != nil {
			release()
			return nil, false, fmt.Errorf("lock folder: %w", err)
		}
		files = append(files, f)
		if err := durable.Lock(f); err != nil {
			release()
			if errors.Is(err, durable.ErrLocked) {
				return func() {}, true, nil
			}
			return nil, false, fmt.Errorf("lock folder %q: %w", dir, err)
		}
	}
	if len(files) == 0 {
		return nil, false, fmt.Errorf("no server has used %q (--root) and %q (--state)", n.places.root, n.places.state)
	}
	return release, false, nil
}

func (n *checked) options(served bool) (check.Options, error) {
	cgroups, err := cgroup.New(n.config.CgroupDriver)
	if err != nil {
		return check.Options{}, err
	}
	boot, err := boot.ID()
	if err != nil {
		return check.Options{}, err
	}
	return check.Options{
		Root: n.places.root, State: n.places.state, Cgroups: cgroups, Network: networkOptions(n.config, n.places, n.logger),
		BootID: boot, Orphan: pod.Orphan, Modules: wasm.Node{Cache: n.places.wasm()}, Served: served,
	}, nil
}

// look checks once.
func (n *checked) look(ctx context.Context, served bool) (check.Result, error) {
	o, err := n.options(served)
	if err != nil {
		return check.Result{}, err
	}
	result, err := check.Run(ctx, o)
	if err != nil {
		return result, fmt.Errorf("check: %w", err)
	}
	killed, err := killedServers()
	for _, dir := range killed {
		result.Findings = append(result.Findings, check.Finding{
			Subject: "folder " + dir, What: "the sunaba run that had its server in it was killed, and its pod may still run",
			Do: "run check --repair, or sunaba run without a server: both remove it",
		})
	}
	if found, perr := n.pods(ctx, served); perr == nil {
		result.Findings = append(result.Findings, found...)
	} else {
		err = errors.Join(err, perr)
	}
	return result, err
}

// pods looks at how the node is set up for pods from manifests.
func (n *checked) pods(ctx context.Context, served bool) ([]check.Finding, error) {
	c := n.config.Pods
	if len(c.Manifests) == 0 {
		return nil, nil
	}
	graces, err := c.Graces()
	if err != nil {
		return nil, err
	}
	o := setup.Options{Manifests: c.Manifests, Socket: defaultPlaces().socket, Grace: graces.Total, DropIn: c.LogindDropIn, Served: served}
	if client, err := api.Connect(ctx, filepath.Join(n.places.state, api.SocketName)); err == nil {
		if info, err := client.Server(ctx); err == nil {
			o.Socket = info.CRISocket
		}
		_ = client.Close()
	}
	return setup.Look(ctx, o), nil
}

// check looks without being in the way of a server that starts.
func (n *checked) check(ctx context.Context) error {
	served := func() (bool, error) {
		release, served, err := n.hold()
		if err == nil {
			release()
		}
		return served, err
	}
	for {
		before, err := served()
		if err != nil {
			return err
		}
		result, err := n.look(ctx, before)
		if err != nil {
			return err
		}
		if after, err := served(); err != nil || after == before {
			return errors.Join(err, n.report(result, before))
		}
	}
}

// alone looks while no server can start; use is called with the result.
func (n *checked) alone(ctx context.Context, use func(check.Result) error) error {
	release, served, err := n.hold()
	if err != nil {
		return err
	}
	defer release()
	if served {
		return fmt.Errorf("check: a server has %q open and may be using what looks unused; stop it (pods run on) and try again, or restart it: it cleans up when it starts",
			n.places.root)
	}
	result, err := n.look(ctx, false)
	if err != nil {
		return err
	}
	return use(result)
}

// report prints findings and ends with 1 if there are any.
func (n *checked) report(r check.Result, served bool) error {
	for _, f := range r.Findings {
		fmt.Fprintf(n.out, "%s: %s\n    to do: %s\n", f.Subject, f.What, f.Do)
	}
	server := "no server runs"
	if served {
		server = "a server runs"
	}
	_, err := fmt.Fprintf(n.out, "%d findings; %d pods and %d containers on record; %s\n", len(r.Findings), r.Pods, r.Containers, server)
	if err == nil && len(r.Findings) > 0 {
		return usage.Exit(1)
	}
	return err
}

// repair does what a start of the server does, removes what nothing owns and is still there, and
// reports the rest.
func (n *checked) repair(ctx context.Context) error {
	var found []check.Finding
	if err := n.alone(ctx, func(r check.Result) error { found = r.Findings; return nil }); err != nil {
		return err
	}
	if err := clearServers(ctx, n.config, io.Discard, n.logger); err != nil {
		fmt.Fprintf(n.out, "not repaired: %v\n", err)
	}
	if len(found) > 0 {
		if err := n.recover(ctx); err != nil {
			return err
		}
		if err := n.alone(ctx, func(r check.Result) error { return n.remove(ctx, append(found, r.Findings...)) }); err != nil {
			return err
		}
	}
	return n.alone(ctx, func(r check.Result) error {
		still := map[string]bool{}
		for _, f := range r.Findings {
			still[f.Subject+f.What] = true
		}
		for _, f := range found {
			if !still[f.Subject+f.What] {
				fmt.Fprintf(n.out, "repaired: %s: %s\n", f.Subject, f.What)
			}
		}
		return n.report(r, false)
	})
}

// recover starts a server on a socket that no client knows, which cleans up as every server does at
// its start, and stops it. Pods keep running.
func (n *checked) recover(ctx context.Context) error {
	p := n.places
	p.socket = filepath.Join(p.state, "repair.sock")
	d, err := newDaemon(n.config, p, false, nil, n.logger)
	if err != nil {
		return err
	}
	d.startNetwork()
	d.server.Recover(context.WithoutCancel(ctx))
	d.server.Stop()
	return errors.Join(d.listener.Close(), d.Close())
}

// remove takes away what nothing owns, also what the recovery has left of what was found before it:
// afterwards less can be seen of whose something is.
func (n *checked) remove(ctx context.Context, findings []check.Finding) error {
	for _, f := range findings {
		if _, err := f.Remove(ctx); err != nil {
			fmt.Fprintf(n.out, "not repaired: %s: %v\n", f.Subject, err)
		}
	}
	return nil
}
