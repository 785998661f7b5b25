package output

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

func TestFormats(t *testing.T) {
	formats := Formats{Table, JSON, YAML}
	for args, want := range map[string]string{
		"":                 Table,
		"-o yaml":          YAML,
		"--output=json":    JSON,
		"--json":           JSON,
		"--json -o json":   JSON,
		"--json -o yaml":   "x: -o yaml and --json are given",
		"-o wide":          `x: -o "wide" is not table, json or yaml`,
		"--json -o nosuch": `x: -o "nosuch" is not table, json or yaml`,
	} {
		var got string
		cmd := &cli.Command{Name: "x", Flags: []cli.Flag{formats.Flag(), &cli.BoolFlag{Name: "json"}}, Action: func(_ context.Context, cmd *cli.Command) (err error) {
			got, err = formats.Of(cmd)
			return err
		}, ExitErrHandler: func(context.Context, *cli.Command, error) {}}
		if err := cmd.Run(t.Context(), append([]string{"x"}, strings.Fields(args)...)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

func TestEncode(t *testing.T) {
	v := []struct {
		Name string `json:"theName"`
	}{{"a"}}
	for format, want := range map[string]string{JSON: "[\n  {\n    \"theName\": \"a\"\n  }\n]\n", YAML: "- theName: a\n"} {
		var out bytes.Buffer
		if err := Encode(&out, v, format); err != nil || out.String() != want || !ForPrograms(format) {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
	}
}
