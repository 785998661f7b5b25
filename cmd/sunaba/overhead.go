package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/measure"
)

func overheadCommand() *cli.Command {
	return &cli.Command{
		Name:  "overhead",
		Usage: "measure what pods cost beyond their containers' own work",
		Commands: []*cli.Command{{
			Name:      "measure",
			Usage:     "run pods on this node and print a RuntimeClass that declares what they cost",
			ArgsUsage: "[-- COMMAND...]",
			Description: "Runs pods of one container through the server on --socket, measures each at its start, idle and at work, prints a\n" +
				"table on standard error and the RuntimeClass on standard output, and removes the pods. The image must run on, as a\n" +
				"server does; COMMAND replaces the image's own.",
			Flags: []cli.Flag{
				socketFlag(),
				&cli.StringFlag{Name: "handler", Usage: "runtime handler `NAME`; without it, the node's default"},
				&cli.IntFlag{Name: "n", Usage: "`NUMBER` of pods", Value: 20},
				&cli.StringFlag{Name: "image", Usage: "image `REFERENCE` of the pods' container", Required: true},
				&cli.StringFlag{Name: "load", Usage: "`PORT[/PATH]` of an HTTP server in the container that is asked while the pod is at work;\n" +
					"without it, further containers of the image are started and stopped meanwhile"},
				&cli.DurationFlag{Name: "idle", Usage: "`TIME` that a pod is watched idle", Value: 2 * time.Second},
				&cli.DurationFlag{Name: "work", Usage: "`TIME` that a pod is watched at work", Value: 2 * time.Second},
				&cli.StringFlag{Name: "class", Usage: "`NAME` of the RuntimeClass; without it, sunaba-HANDLER"},
				&cli.StringFlag{Name: "plot", Usage: "SVG `FILE` to draw the distribution into"},
			},
			Action: measureOverhead,
		}},
	}
}

func measureOverhead(ctx context.Context, cmd *cli.Command) (err error) {
	o := measure.Options{
		Handler: cmd.String("handler"), Image: cmd.String("image"), Args: cmd.Args().Slice(), Pods: cmd.Int("n"),
		Idle: cmd.Duration("idle"), Work: cmd.Duration("work"), Load: cmd.String("load"), Notes: cmd.Root().ErrWriter,
	}
	if o.Pods < 1 || o.Idle <= 0 || o.Work <= 0 {
		return fmt.Errorf("overhead measure: -n, --idle and --work must be above 0: %w", errdefs.ErrInvalidArgument)
	}
	c, err := dial.Connect(ctx, cmd.String("socket"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	handler := o.Handler
	if handler == "" {
		if handler, err = defaultHandler(c); err != nil {
			return err
		}
	}
	class := cmp.Or(cmd.String("class"), "sunaba-"+handler)
	if errs := validation.IsDNS1123Subdomain(class); len(errs) > 0 {
		return fmt.Errorf("overhead measure: --class %q: %s: %w", class, strings.Join(errs, "; "), errdefs.ErrInvalidArgument)
	}
	file := cmd.String("plot")
	if _, err := os.Stat(filepath.Dir(file)); err != nil { // measuring takes long
		return fmt.Errorf("overhead measure: --plot %q: %w", file, err)
	}
	figures, others, err := measure.Run(ctx, c, o)
	if err != nil {
		return err
	}
	if err := measure.Table(cmd.Root().ErrWriter, figures); err != nil {
		return err
	}
	err = measure.Manifest(cmd.Root().Writer, class, handler, measuredWith(o, handler), figures, others)
	if file == "" {
		return err
	}
	var picture bytes.Buffer
	err = errors.Join(err, measure.Plot(&picture, fmt.Sprintf("handler %s: %d pods of %s", handler, len(figures), o.Image), figures))
	if werr := os.WriteFile(file, picture.Bytes(), 0o644); werr != nil {
		err = errors.Join(err, fmt.Errorf("write picture: %w", werr))
	}
	return err
}

// measuredWith is the command that measures the same again.
func measuredWith(o measure.Options, handler string) string {
	words := []string{"sunaba overhead measure", "--handler " + handler, fmt.Sprintf("-n %d", o.Pods), "--image " + o.Image}
	if o.Load != "" {
		words = append(words, "--load "+o.Load)
	}
	if len(o.Args) > 0 {
		words = append(words, "-- "+strings.Join(o.Args, " "))
	}
	return strings.Join(words, " ")
}

func defaultHandler(c *dial.Client) (string, error) {
	handlers, err := handlersOf(c)
	if err != nil {
		return "", err
	}
	for _, h := range handlers {
		if h.Default {
			return h.Name, nil
		}
	}
	return "", fmt.Errorf("the server tells no default handler: name one with --handler: %w", errdefs.ErrFailedPrecondition)
}
