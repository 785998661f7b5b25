package supportbundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/host/durable"
)

// Command is the command, for the top level of the command line. look says what the flags choose.
func Command(flags []cli.Flag, look func(*cli.Command) (Node, error)) *cli.Command {
	return &cli.Command{
		Name:      "support-bundle",
		Usage:     "write what helps to find a fault into one archive, without secrets",
		ArgsUsage: " ",
		Description: "Versions, the configuration, what \"sunaba check\" finds, records, manifests, and the logs of the server and of shims, as a\n" +
			"tar file with gzip. The server may run or not, and nothing is changed. Values of environment variables, arguments,\n" +
			"annotations, labels, Secrets, ConfigMaps and credentials are left out, of logs too where they are found. What went in\n" +
			"and what cannot be read is printed, and is in index.txt. Look through it before you hand it on.",
		Flags: append(flags,
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write; - is stdout; without it, sunaba-support-TIME.tar.gz here"},
			&cli.BoolFlag{Name: "force", Usage: "replace FILE if it exists"},
			&cli.StringFlag{Name: "unit", Usage: "systemd's `UNIT` of the server, whose journal has its log", Value: "sunaba.service"},
			&cli.StringFlag{Name: "log-file", Usage: "`FILE` that has the server's log, in place of the journal"},
			&cli.BoolFlag{Name: "pod-logs", Usage: "add the last 64 KiB of each log of containers, which may have secrets"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			n, err := look(cmd)
			if err != nil {
				return err
			}
			n.Unit, n.LogFile, n.WithPodLogs = cmd.String("unit"), cmd.String("log-file"), cmd.Bool("pod-logs")
			file := cmp.Or(cmd.String("output"), "sunaba-support-"+time.Now().UTC().Format("20060102-150405")+".tar.gz")
			out := cmd.Root().Writer
			if file == "-" && images.IsTerminal(out) {
				return errors.New("support-bundle: an archive is nothing for a terminal; say where to with --output")
			}
			index := ""
			if file == "-" {
				index, err = n.stream(ctx, out)
			} else {
				index, err = n.writeFile(ctx, file, cmd.Bool("force"))
			}
			if err != nil {
				return fmt.Errorf("write support bundle: %w", err)
			}
			_, err = fmt.Fprintf(cmd.Root().ErrWriter, "%swritten to %s: look through it before you hand it on\n", index, file)
			return err
		},
	}
}

// stream writes the bundle and returns when the context ends, also where out blocks.
func (n Node) stream(ctx context.Context, out io.Writer) (index string, err error) {
	type written struct {
		index string
		err   error
	}
	done := make(chan written, 1)
	go func() {
		index, err := n.write(ctx, out)
		done <- written{index, err}
	}()
	select {
	case w := <-done:
		return w.index, errors.Join(w.err, ctx.Err())
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// writeFile writes the bundle to a file that only its owner reads, as a whole or not at all.
func (n Node) writeFile(ctx context.Context, file string, force bool) (index string, err error) {
	switch info, err := os.Lstat(file); {
	case err == nil && !force:
		return "", fmt.Errorf("%q exists: --force replaces it", file)
	case err == nil && !info.Mode().IsRegular():
		return "", fmt.Errorf("%q is not a regular file", file)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	f, err := durable.Create(file)
	if err != nil {
		return "", err
	}
	if index, err = n.stream(ctx, f); err != nil {
		return "", errors.Join(err, f.Discard())
	}
	return index, f.Commit()
}
