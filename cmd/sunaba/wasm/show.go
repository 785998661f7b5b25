package wasm

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
	"github.com/sunaba-project/sunaba/shim/wasm/inspect"
)

// ShowReport shows what a module is.
func ShowReport(w io.Writer, s Source, r inspect.Report, asJSON bool) error {
	if asJSON {
		return output.Encode(w, struct {
			Source Source `json:"source"`
			inspect.Report
		}{s, r}, output.JSON)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	from := s.Kind
	if s.Image != "" {
		from += " " + s.Image + " (" + clean(s.Platform) + ")"
	}
	if s.Command != "" {
		from += ", " + clean(s.Command)
	}
	line(t, "name", clean(s.Name))
	line(t, "from", from)
	line(t, "kind", r.Kind)
	line(t, "digest", r.Digest)
	line(t, "size", units.Bytes(r.Size))
	switch {
	case r.Kind == inspect.KindModule:
		module(t, r)
	case r.Component != nil:
		component(t, r)
	}
	for _, note := range r.Notes {
		line(t, "note", note)
	}
	switch {
	case len(r.Refused) > 0:
	case r.Checked:
		line(t, "verdict", "runs here")
	default:
		line(t, "verdict", "its sections are in order; its code was not looked at")
	}
	for _, why := range r.Refused {
		line(t, "refused", clean(why))
	}
	return t.Flush()
}

// line writes one line of two columns.
func line(w io.Writer, what, text string) { fmt.Fprintf(w, "%s\t%s\n", what, text) }

// content shows what core modules and components have alike.
func content(w io.Writer, r inspect.Report) {
	s := r.Sections
	line(w, "toolchain", orNone(cleanAll(r.Toolchain)))
	if len(r.Features) > 0 {
		line(w, "features", strings.Join(cleanAll(r.Features), " "))
	}
	line(w, "functions", strconv.Itoa(r.Functions))
	line(w, "sections", fmt.Sprintf("code %s, data %s, names %s, DWARF %s, other %s",
		units.Bytes(s.Code), units.Bytes(s.Data), units.Bytes(s.Names), units.Bytes(s.DWARF), units.Bytes(s.Other)))
	for _, m := range r.Memories {
		line(w, "memory", memory(m))
	}
}

// module shows what core modules have.
func module(w io.Writer, r inspect.Report) {
	content(w, r)
	for _, t := range r.Tables {
		line(w, "table", table(t))
	}
	steps(w, r.Light)
	if r.Go != nil {
		line(w, "rewritten", rewriting(*r.Go))
	}
	for _, g := range r.Imports {
		line(w, "imports", "from "+clean(g.Module))
		for _, i := range g.Imports {
			line(w, "", fmt.Sprintf("  %s %s: %s", clean(i.Name), kindAndType(i.Kind, i.Type), i.Host))
		}
	}
	for i, e := range r.Exports {
		what := ""
		if i == 0 {
			what = "exports"
		}
		line(w, what, clean(e.Name)+" "+kindAndType(e.Kind, e.Type))
	}
}

// steps shows which of the steps that make a start light are taken.
func steps(w io.Writer, l inspect.Light) {
	for _, step := range []struct {
		name string
		is   inspect.Step
	}{{"memory image", l.Image}, {"start module", l.Bare}, {"shared code", l.Share}} {
		switch {
		case step.is.State == "":
		case step.is.Why != "":
			line(w, step.name, step.is.State+": "+step.is.Why)
		default:
			line(w, step.name, step.is.State)
		}
	}
}

// rewriting says what happened to the functions of a module of Go's.
func rewriting(r gowasm.Result) string {
	if r.Declined != "" {
		return "not: " + clean(r.Declined)
	}
	return fmt.Sprintf("%d of %d functions; %d more stay as they are because it is not certain that they would do the same", r.Rewritten, r.Functions, r.Refused)
}

// kindAndType leaves out that a function is one: its type says so.
func kindAndType(kind, text string) string {
	switch {
	case text == "":
		return kind
	case kind == "function":
		return text
	}
	return kind + " " + text
}

func memory(m inspect.Memory) string {
	text := pages(m.Initial)
	if m.Max != nil {
		text += ", at most " + pages(*m.Max)
	}
	for _, f := range []struct {
		is   bool
		text string
	}{{m.Imported, "imported"}, {m.Shared, "shared"}, {m.Wide, "64-bit addresses"}} {
		if f.is {
			text += ", " + f.text
		}
	}
	return text
}

// pages is a number of pages, in MiB too.
func pages(n uint64) string {
	return fmt.Sprintf("%d pages (%s MiB)", n, strconv.FormatFloat(float64(n)/16, 'f', -1, 64))
}

func table(t inspect.Table) string {
	text := fmt.Sprintf("%d of %s", t.Initial, t.Element)
	if t.Max != nil {
		text += fmt.Sprintf(", at most %d", *t.Max)
	}
	if t.Imported {
		text += ", imported"
	}
	return text
}

func orNone(texts []string) string {
	if len(texts) == 0 {
		return "not told"
	}
	return strings.Join(texts, ", ")
}

func cleanAll(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = clean(t)
	}
	return out
}

// clean is a text of a stranger for a terminal: quoted if anything in it cannot be seen.
func clean(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(text)
	}
	return text
}
