package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	notify "github.com/coreos/go-systemd/v22/daemon"
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/tracing"
)

// placeFlags are the flags that make a server one of its own.
func placeFlags() []cli.Flag {
	p := defaultPlaces()
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "configuration `FILE`; without it " + standardConfig + " if it exists, else the defaults hold"},
		&cli.StringFlag{Name: "root", Usage: "`FOLDER` of what outlives a reboot: images, records", Value: p.root},
		&cli.StringFlag{Name: "state", Usage: "`FOLDER` of what does not: running pods", Value: p.state},
		&cli.StringFlag{Name: "socket", Usage: "unix socket `FILE` to serve CRI on", Value: p.socket},
	}
}

func logFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "log-level", Usage: "`LEVEL`: debug, info, warn or error; before the configuration's"},
		&cli.StringFlag{Name: "log-format", Usage: "`FORMAT`: text or json; before the configuration's"},
	}
}

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:      "serve",
		Usage:     "serve CRI; pods run on when this ends",
		ArgsUsage: " ",
		Flags:     append(placeFlags(), logFlags()...),
		Action:    serve,
	}
}

// flagConfig reads the configuration and lays the logging flags over it.
func flagConfig(cmd *cli.Command) (config, error) {
	c, err := readConfig(cmd.String("config"))
	if level := cmd.String("log-level"); level != "" {
		c.Log.Level = level
	}
	if format := cmd.String("log-format"); format != "" {
		c.Log.Format = format
	}
	return c, err
}

// quietConfig is flagConfig with a logger, for a command whose answers have what matters to the
// user: unless --log-level says otherwise, errors are logged only.
func quietConfig(cmd *cli.Command) (config, *slog.Logger, error) {
	c, err := flagConfig(cmd)
	if err != nil {
		return c, nil, err
	}
	if cmd.String("log-level") == "" {
		c.Log.Level = "error"
	}
	logger, err := newLogger(cmd.Root().ErrWriter, c.Log)
	return c, logger, err
}

// checkRootAlone refuses arguments, and users other than root.
func checkRootAlone(cmd *cli.Command) error {
	if cmd.NArg() > 0 {
		return fmt.Errorf("%s: argument %q is not expected", cmd.Name, cmd.Args().First())
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: must run as root", cmd.Name)
	}
	return nil
}

func serve(ctx context.Context, cmd *cli.Command) error {
	if err := checkRootAlone(cmd); err != nil {
		return err
	}
	c, err := flagConfig(cmd)
	if err != nil {
		return err
	}
	logger, err := newLogger(cmd.Root().ErrWriter, c.Log)
	if err != nil {
		return err
	}
	p := places{root: cmd.String("root"), state: cmd.String("state"), socket: cmd.String("socket"), config: cmd.String("config")}
	if err := p.resolve(); err != nil {
		return err
	}
	traces, err := tracing.Open(logger)
	if err != nil {
		return err
	}
	defer traces.Close() // last: ends are traced too
	d, err := newDaemon(c, p, c.Log.Level == "debug", traces.Tracer(), logger)
	if err != nil {
		return err
	}
	served := d.Serve(ctx, func() {
		if _, err := notify.SdNotify(false, notify.SdNotifyReady); err != nil {
			logger.Warn("failed to notify systemd", "error", err)
		}
	})
	return errors.Join(served, d.Close())
}

// resolve makes the places independent of the working folder, which is another one for shims, and
// of symbolic links: OCI runtimes refuse them in a container's root, and the kernel lists no mount
// by them.
func (p *places) resolve() error {
	all := []*string{&p.root, &p.state, &p.socket}
	if p.config != "" {
		all = append(all, &p.config)
	}
	for _, path := range all {
		full, err := filepath.Abs(*path)
		if err == nil && (path == &p.root || path == &p.state) {
			full, err = real(full)
		}
		if err != nil {
			return fmt.Errorf("find folder: %w", err)
		}
		*path = full
	}
	standard, err := real(defaultPlaces().root)
	p.standard = err == nil && p.root == standard
	return nil
}

// real is a path without symbolic links; its end need not exist.
func real(path string) (string, error) {
	found, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	if to, err := os.Readlink(path); err == nil {
		return "", fmt.Errorf("%q is a symbolic link to %q, which does not exist: make it, or mount its disk", path, to)
	}
	above, err := real(filepath.Dir(path))
	return filepath.Join(above, filepath.Base(path)), err
}
