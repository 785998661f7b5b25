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
	"sigs.k8s.io/yaml/kyaml"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/fieldpath"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
	"github.com/sunaba-project/sunaba/pods/api"
)

// The formats of -o.
const (
	plain          = ""
	wide           = "wide"
	formatYAML     = "yaml"
	formatJSON     = "json"
	formatName     = "name"
	formatJSONPath = "jsonpath"
	formatColumns  = "custom-columns"
	formatPathJSON = "jsonpath-as-json"
	formatKYAML    = "kyaml"

	formatTexts = "wide, yaml, kyaml, json, name, jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE, jsonpath-file=FILE, custom-columns=NAME:FIELD, custom-columns-file=FILE"
	// maxTemplate bounds a template in a file, in bytes.
	maxTemplate = 1 << 20
)

// output says how objects are printed.
type output struct {
	format   string
	template *fieldpath.Path // of jsonpath
	columns  []column        // of custom-columns
	labels   []string        // of -L
	sort     *fieldpath.Path // by which field objects are sorted, nil leaves their order
}

// column is one of custom-columns.
type column struct {
	header string
	field  *fieldpath.Path
}

func sortFlag() cli.Flag {
	return &cli.StringFlag{Name: "sort-by", Usage: "sort by `FIELD`, a JSONPath: .metadata.creationTimestamp"}
}

func outputOf(cmd *cli.Command) (output, error) {
	o, err := parseOutput(cmd.String("output"))
	if text := cmd.String("sort-by"); err == nil && text != "" {
		o.sort, err = fieldpath.Field(text)
	}
	for _, l := range cmd.StringSlice("label-columns") {
		o.labels = append(o.labels, strings.Split(l, ",")...)
	}
	if err != nil {
		return output{}, fmt.Errorf("%s: %w", cmd.Name, err)
	}
	return o, nil
}

func (o output) table() bool {
	return o.format == plain || o.format == wide || o.format == formatColumns
}

// values says whether Secrets are asked for with their values.
func (o output) values() bool {
	return o.format == formatYAML || o.format == formatKYAML || o.format == formatJSON || o.template != nil || o.format == formatColumns
}

// options say which columns a kind's own table has; kinds is whether there are several.
func (o output) options(cmd *cli.Command, kinds bool) table.Options {
	return table.Options{
		Namespace: cmd.Bool("all-namespaces"), Labels: cmd.Bool("show-labels"), LabelColumns: o.labels,
		Wide: o.format == wide, Kind: kinds || cmd.Bool("show-kind"),
	}
}

func (o output) header(cmd *cli.Command, r api.Resource, options table.Options) []string {
	if cmd.Bool("no-headers") {
		return nil
	}
	if o.columns == nil {
		return table.Header(r, options)
	}
	var header []string
	for _, c := range o.columns {
		header = append(header, c.header)
	}
	return header
}

func (o output) row(r api.Resource, raw json.RawMessage, now time.Time, options table.Options) ([]string, error) {
	if o.columns == nil {
		return table.Row(r, raw, now, options)
	}
	var row []string
	for _, c := range o.columns {
		values, err := c.field.Values(raw)
		if err != nil {
			return nil, err
		}
		var texts []string
		for _, v := range values {
			texts = append(texts, fmt.Sprint(v))
		}
		row = append(row, table.OrNone(strings.Join(texts, ",")))
	}
	return row, nil
}

func (o output) rows(r api.Resource, items []json.RawMessage, now time.Time, options table.Options) ([][]string, error) {
	rows := make([][]string, 0, len(items))
	for _, raw := range items {
		row, err := o.row(r, raw, now, options)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// print prints objects. One object that was asked for by name is printed alone, others in a List.
func (o output) print(out io.Writer, cmd *cli.Command, groups []group, single bool) error {
	if o.sort != nil {
		for _, g := range groups {
			if err := o.sort.Sort(g.items); err != nil {
				return fmt.Errorf("%s: --sort-by: %w", cmd.Name, err)
			}
		}
	}
	if o.columns != nil && len(groups) > 0 { // one table, as they are the same for all kinds
		all := group{Resource: groups[0].Resource}
		for _, g := range groups {
			all.items = append(all.items, g.items...)
		}
		groups = []group{all}
	}
	if o.table() {
		return o.tables(out, cmd, groups, time.Now())
	}
	items := []json.RawMessage{}
	var r api.Resource
	for _, g := range groups {
		if o.format == formatName {
			if err := o.each(out, g.Resource, g.items); err != nil {
				return err
			}
		}
		r, items = g.Resource, append(items, g.items...)
	}
	switch {
	case o.format == formatName, single && len(items) == 0: // what is missing is told
		return nil
	case single && len(items) == 1:
		return o.one(out, r, items[0])
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]string{"resourceVersion": ""}, "items": items})
	if err != nil {
		return err
	}
	return o.one(out, r, list)
}

// each prints objects one after the other.
func (o output) each(out io.Writer, r api.Resource, items []json.RawMessage) error {
	for _, raw := range items {
		if err := o.one(out, r, raw); err != nil {
			return err
		}
	}
	return nil
}

// one prints one object.
func (o output) one(out io.Writer, r api.Resource, raw json.RawMessage) error {
	text, err := o.text(r, raw)
	if err != nil {
		return fmt.Errorf("print %s: %w", r.Singular, err)
	}
	_, err = out.Write(text)
	return err
}

func (o output) text(r api.Resource, raw json.RawMessage) ([]byte, error) {
	switch o.format {
	case formatYAML:
		return yaml.JSONToYAML(raw)
	case formatJSONPath, formatPathJSON:
		return o.template.Print(raw)
	case formatJSON, formatKYAML:
		v, err := fieldpath.Decode(raw) // fields by name, as kubectl has them
		if err != nil {
			return nil, err
		}
		data, err := json.MarshalIndent(v, "", "    ")
		if err != nil || o.format == formatJSON {
			return append(data, '\n'), err
		}
		var b bytes.Buffer
		err = (&kyaml.Encoder{}).FromYAML(bytes.NewReader(data), &b)
		return b.Bytes(), err
	}
	var v struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		File     string            `json:"file"`
	}
	err := json.Unmarshal(raw, &v)
	return fmt.Appendln(nil, r.QualifiedName()+"/"+v.Metadata.Name+v.File), err
}
