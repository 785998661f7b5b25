// Package table prints objects in kubectl's columns.
package table

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// As kubectl's tables have them.
const (
	leastWidth = 6
	padding    = 3
)

// None stands in a column that has nothing to say.
const None = "<none>"

// Printer prints rows below a header. It remembers the widths of its columns, so that rows that
// come later stand below the first ones.
type Printer struct {
	out    io.Writer
	header []string // nil once it was printed, or if the table has no header
	widths []int
}

// NewPrinter prints to out. A nil header prints rows only.
func NewPrinter(out io.Writer, header []string) *Printer { return &Printer{out: out, header: header} }

// Print prints rows, which may be none: then the header is not printed either.
func (p *Printer) Print(rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	if p.header != nil {
		rows = append([][]string{p.header}, rows...)
		p.header = nil
	}
	for _, row := range rows {
		for n, cell := range row {
			if n == len(p.widths) {
				p.widths = append(p.widths, leastWidth)
			}
			p.widths[n] = max(p.widths[n], utf8.RuneCountInString(Cell(cell))+padding)
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for n, cell := range row {
			cell = Cell(cell)
			b.WriteString(cell)
			if n < len(row)-1 {
				b.WriteString(strings.Repeat(" ", p.widths[n]-utf8.RuneCountInString(cell)))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

// Cell is a text as one line of a table: what follows a line's end is left out, as kubectl does.
func Cell(s string) string {
	if at := strings.IndexAny(s, "\f\n\r"); at >= 0 {
		s = s[:at] + "..."
	}
	return Plain(s)
}

// Plain is a text from a stranger without what a terminal would obey: control characters are
// written out, except tabs and ends of lines.
func Plain(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !obeyed(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteString("^" + string(r+'@'))
		default:
			fmt.Fprintf(&b, "\\x%02x", r)
		}
	}
	return b.String()
}

func obeyed(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// OrNone is a text, or None if it is empty.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}
