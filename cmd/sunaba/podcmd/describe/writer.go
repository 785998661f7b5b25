// Package describe writes all that is known of an object for people, in the sections and order of
// kubectl describe, with what the agent waits for.
package describe

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
)

// maxAnnotation is the longest annotation that stands on one line, and the longest line of others.
const maxAnnotation = 140

// writer writes lines that are indented by two blanks for each level. Tabs in what it is given
// align columns.
type writer struct{ out strings.Builder }

// line writes a line. What it is given is made plain: no control character reaches a terminal.
func (w *writer) line(level int, format string, args ...any) {
	for n, a := range args {
		switch v := a.(type) {
		case string:
			args[n] = oneLine(v)
		case fmt.Stringer:
			args[n] = oneLine(v.String())
		}
	}
	w.out.WriteString(strings.Repeat("  ", level))
	fmt.Fprintf(&w.out, format+"\n", args...)
}

// oneLine is a text that starts no line and no column of its own.
func oneLine(s string) string {
	return table.Plain(strings.NewReplacer("\n", "^J", "\t", "^I").Replace(s))
}

// flush writes everything with its columns aligned, as kubectl aligns them.
func (w *writer) flush(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if _, err := io.WriteString(t, w.out.String()); err != nil {
		return err
	}
	return t.Flush()
}

// pairs writes labels or selectors, one on a line.
func (w *writer) pairs(title string, m map[string]string) {
	if len(m) == 0 {
		w.line(0, "%s:\t<none>", title)
		return
	}
	for n, k := range slices.Sorted(maps.Keys(m)) {
		if n > 0 {
			title = ""
		}
		w.line(0, "%s\t%s=%s", titled(title), k, m[k])
	}
}

func titled(title string) string {
	if title == "" {
		return ""
	}
	return title + ":"
}

// annotations writes annotations; long ones and those of many lines stand below their names.
func (w *writer) annotations(m map[string]string) {
	if len(m) == 0 {
		w.line(0, "Annotations:\t<none>")
		return
	}
	title := "Annotations"
	for _, k := range slices.Sorted(maps.Keys(m)) {
		value := strings.TrimSuffix(m[k], "\n")
		if len(k)+len(value)+2 <= maxAnnotation && !strings.Contains(value, "\n") {
			w.line(0, "%s\t%s: %s", titled(title), k, value)
			title = ""
			continue
		}
		w.line(0, "%s\t%s:", titled(title), k)
		title = ""
		for part := range strings.SplitSeq(value, "\n") {
			if len(part) > maxAnnotation-2 {
				part = strings.ToValidUTF8(part[:maxAnnotation-2], "") + "..."
			}
			w.line(0, "\t  %s", part)
		}
	}
}

// listed writes a text of many lines, each on one below a title.
func (w *writer) listed(level int, texts []string) {
	for _, text := range texts {
		for part := range strings.SplitSeq(text, "\n") {
			w.line(level, "%s", part)
		}
	}
}
