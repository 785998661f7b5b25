// Package output prints what a command answers in the format of -o.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	"sigs.k8s.io/yaml"
)

// Formats of -o.
const (
	Table = "table"
	Wide  = "wide"
	Name  = "name"
	JSON  = "json"
	YAML  = "yaml"
)

// Formats are those that a command knows, its usual one first.
type Formats []string

// OfTable are those of a list that has one table.
func OfTable() Formats { return Formats{Table, JSON, YAML} }

// Flag is -o.
func (f Formats) Flag() cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "print as `FORMAT`: " + f.texts(), Value: f[0]}
}

func (f Formats) texts() string {
	last := len(f) - 1
	return strings.Join(f[:last], ", ") + " or " + f[last]
}

// Of reads -o, or --json if the command has that flag too.
func (f Formats) Of(cmd *cli.Command) (string, error) {
	format := cmd.String("output")
	switch {
	case !slices.Contains(f, format):
		return "", fmt.Errorf("%s: -o %q is not %s", cmd.Name, format, f.texts())
	case !cmd.Bool("json"):
		return format, nil
	case cmd.IsSet("output") && format != JSON:
		return "", fmt.Errorf("%s: -o %s and --json are given", cmd.Name, format)
	}
	return JSON, nil
}

// ForPrograms says whether Encode prints a format.
func ForPrograms(format string) bool { return format == JSON || format == YAML }

// Encode prints a value as JSON or YAML, with the same fields.
func Encode(out io.Writer, v any, format string) error {
	if format != YAML {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	data, err := yaml.Marshal(v) // by the fields' names in JSON
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}
