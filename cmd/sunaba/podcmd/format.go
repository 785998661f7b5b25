package podcmd

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/fieldpath"
	"github.com/sunaba-project/sunaba/host/regular"
)

// parseOutput reads the value of -o.
func parseOutput(text string) (o output, err error) {
	format, template, given := strings.Cut(text, "=")
	kind, fromFile := strings.CutSuffix(format, "-file")
	if fromFile && kind != formatJSONPath && kind != formatColumns && kind != "go-template" {
		kind = format
	}
	switch kind {
	case formatJSONPath, formatColumns, formatPathJSON:
	case "go-template", "template", "templatefile":
		return o, fmt.Errorf("-o %s is not there: use -o jsonpath=TEMPLATE or -o custom-columns=NAME:FIELD", format)
	case plain, wide, formatYAML, formatKYAML, formatJSON, formatName:
		if !given {
			return output{format: kind}, nil
		}
		fallthrough
	default:
		return o, fmt.Errorf("unable to match a printer suitable for the output format %q, allowed formats are: %s", text, formatTexts)
	}
	if template == "" {
		if kind == formatColumns {
			return o, errors.New("custom-columns format specified but no custom columns given")
		}
		return o, errors.New("template format specified but no template given")
	}
	if fromFile {
		if template, err = readTemplate(template); err != nil {
			return o, err
		}
	}
	o.format = kind
	switch {
	case kind == formatColumns && fromFile:
		o.columns, err = columnsOfFile(template)
	case kind == formatColumns:
		o.columns, err = parseColumns(strings.Split(template, ","))
	case kind == formatPathJSON:
		o.template, err = fieldpath.JSONTemplate(template)
	default:
		o.template, err = fieldpath.Template(template)
	}
	return o, err
}

func readTemplate(name string) (string, error) {
	f, err := regular.Open(name)
	if err != nil {
		return "", fmt.Errorf("reading template %s, %w", name, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTemplate+1))
	if err != nil {
		return "", fmt.Errorf("reading template %s, %w", name, err)
	}
	if len(data) > maxTemplate {
		return "", fmt.Errorf("reading template %s, it is longer than %d bytes", name, maxTemplate)
	}
	return string(data), nil
}

// parseColumns reads parts as "NAME:FIELD".
func parseColumns(parts []string) ([]column, error) {
	var all []column
	for _, part := range parts {
		header, field, ok := strings.Cut(part, ":")
		if !ok || header == "" || field == "" {
			return nil, fmt.Errorf("unexpected custom-columns spec: %s, expected <header>:<json-path-expr>", part)
		}
		path, err := fieldpath.Field(field)
		if err != nil {
			return nil, err
		}
		all = append(all, column{header, path})
	}
	return all, nil
}

// columnsOfFile reads a line of headers and one of fields below them.
func columnsOfFile(text string) ([]column, error) {
	headers, rest, _ := strings.Cut(text, "\n")
	fields, _, _ := strings.Cut(rest, "\n")
	names, paths := strings.Fields(headers), strings.Fields(fields)
	if len(names) != len(paths) || len(names) == 0 {
		return nil, fmt.Errorf("number of headers (%d) and field specifications (%d) don't match", len(names), len(paths))
	}
	for n := range names {
		names[n] += ":" + paths[n]
	}
	return parseColumns(names)
}
