package usage

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

func program(out io.Writer) *cli.Command {
	done := func(context.Context, *cli.Command) error { return nil }
	return &cli.Command{
		Name: "sunaba", Writer: out, ErrWriter: out, ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Commands: []*cli.Command{
			{Name: "serve", Flags: []cli.Flag{&cli.StringFlag{Name: "root"}, &cli.IntFlag{Name: "n"}}, Action: done},
			{Name: "images", Usage: "of images", Commands: []*cli.Command{{Name: "list", Aliases: []string{"ls"}, Action: done}}},
		},
	}
}

// What is not known is told on one line, with the nearest that is.
func TestGuard(t *testing.T) {
	for line, want := range map[string]string{
		"serv":             `unknown command "serv"; did you mean "serve"? (see sunaba --help)`,
		"bananas":          `unknown command "bananas" (see sunaba --help)`,
		"images lst":       `images: unknown command "lst"; did you mean "list"? (see sunaba images --help)`,
		"serve --rot x":    `serve: unknown flag "--rot"; did you mean "--root"? (see sunaba serve --help)`,
		"serve --n x":      "serve: invalid value \"x\" for flag -n",
		"images list -zzz": `images list: unknown flag "--zzz" (see sunaba images list --help)`,
	} {
		var out strings.Builder
		cmd := program(&out)
		Guard(cmd)
		err := cmd.Run(t.Context(), append([]string{"sunaba"}, strings.Fields(line)...))
		if err == nil || !strings.HasPrefix(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%s: error %v, printed %q; want %s", line, err, out.String(), want)
		}
	}
}

func TestHelpStays(t *testing.T) {
	for _, line := range []string{"", "images", "images --help", "help images", "images help"} {
		var out strings.Builder
		cmd := program(&out)
		Guard(cmd)
		if err := cmd.Run(t.Context(), append([]string{"sunaba"}, strings.Fields(line)...)); err != nil || !strings.Contains(out.String(), "USAGE") {
			t.Errorf("%q: error %v, printed %q", line, err, out.String())
		}
	}
}
