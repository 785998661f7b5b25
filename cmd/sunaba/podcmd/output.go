package podcmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/pods/api"
)

// output is a format of -o.
type output string

// The formats.
const (
	plain      output = ""
	wide       output = "wide"
	formatYAML output = "yaml"
	formatJSON output = "json"
	formatName output = "name"
)

func outputOf(cmd *cli.Command) (output, error) {
	switch o := output(cmd.String("output")); {
	case o == plain, o == wide, o == formatYAML, o == formatJSON, o == formatName:
		return o, nil
	case strings.HasPrefix(string(o), "jsonpath"), strings.HasPrefix(string(o), "go-template"), strings.HasPrefix(string(o), "custom-columns"):
		return "", fmt.Errorf("%s: -o %s is not supported: use -o json and jq", cmd.Name, o)
	default:
		return "", fmt.Errorf("%s: -o %s is none of wide, yaml, json, name", cmd.Name, o)
	}
}

func (o output) table() bool { return o == plain || o == wide }

// values says whether Secrets are asked for with their values.
func (o output) values() bool { return o == formatYAML || o == formatJSON }

// print prints objects. One object that was asked for by name is printed alone, others in a List.
func (o output) print(out io.Writer, cmd *cli.Command, groups []group, single bool) error {
	switch {
	case o.table():
		return o.tables(out, cmd, groups, time.Now())
	case o == formatName:
		for _, g := range groups {
			for _, raw := range g.items {
				if err := o.one(out, g.Resource, raw); err != nil {
					return err
				}
			}
		}
		return nil
	}
	items := []json.RawMessage{}
	var r api.Resource
	for _, g := range groups {
		r, items = g.Resource, append(items, g.items...)
	}
	if single {
		if len(items) == 0 {
			return nil // what is missing is told
		}
		if len(items) == 1 {
			return o.one(out, r, items[0])
		}
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]string{"resourceVersion": ""}, "items": items})
	if err != nil {
		return err
	}
	return o.one(out, r, list)
}

// one prints one object.
func (o output) one(out io.Writer, r api.Resource, raw json.RawMessage) error {
	var b bytes.Buffer
	switch o {
	case formatJSON:
		if err := json.Indent(&b, raw, "", "    "); err != nil {
			return fmt.Errorf("print %s: %w", r.Singular, err)
		}
		b.WriteByte('\n')
	case formatYAML:
		data, err := yaml.JSONToYAML(raw)
		if err != nil {
			return fmt.Errorf("print %s: %w", r.Singular, err)
		}
		b.Write(data)
	case formatName:
		var v struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			File     string            `json:"file"`
		}
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("print %s: %w", r.Singular, err)
		}
		fmt.Fprintln(&b, r.QualifiedName()+"/"+v.Metadata.Name+v.File)
	}
	_, err := b.WriteTo(out)
	return err
}
