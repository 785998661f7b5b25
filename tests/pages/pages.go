// Package pages runs the commands of a page of the documentation as its reader would, and compares
// what they print with what the page shows.
//
// A page has two kinds of fenced blocks that count. ```sh is run, as a script of bash of its own
// that ends at its first error. ```text right behind it is what it prints, with "…" for anything
// within a line, and for any lines where it stands alone. Blocks of other languages are files, and
// ```log is what is written at another time.
package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Block is a script of a page.
type Block struct {
	Line   int // of its first line in the page, from 1
	Script string
	Shown  *string // what it prints; nil if the page does not say
}

// passed are the languages of blocks that are no commands.
var passed = []string{"dockerfile", "ini", "log", "toml", "yaml"}

// Read returns the blocks of a page. Any other fenced block is an error: nobody would run it.
func Read(page string) ([]Block, error) {
	var blocks []Block
	lines := strings.Split(page, "\n")
	after := false // a script ended here, but for empty lines
	for i := 0; i < len(lines); i++ {
		fence, ok := strings.CutPrefix(lines[i], "```")
		if !ok {
			after = after && lines[i] == ""
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		if i == len(lines) {
			return nil, fmt.Errorf("line %d: a block that does not end", begin)
		}
		text := strings.Join(lines[begin:i], "\n") + "\n"
		switch {
		case fence == "sh":
			blocks, after = append(blocks, Block{Line: begin + 1, Script: text}), true
		case fence == "text" && after:
			blocks[len(blocks)-1].Shown, after = &text, false
		case slices.Contains(passed, fence):
			after = false
		default:
			return nil, fmt.Errorf("line %d: a block %q is neither sh nor text right behind sh", begin, fence)
		}
	}
	return blocks, nil
}

// Compare is nil if a text is the shown one. Any number of spaces is like any other.
func Compare(shown, text string) error {
	var expression strings.Builder
	for line := range strings.Lines(shown) {
		if strings.TrimSpace(line) == "…" {
			expression.WriteString(`(?:.*\n)*?`)
			continue
		}
		words := strings.Fields(line)
		for i, word := range words {
			words[i] = strings.ReplaceAll(regexp.QuoteMeta(word), "…", ".*")
		}
		expression.WriteString(" *" + strings.Join(words, " +") + " *\n")
	}
	whole, err := regexp.Compile("^" + expression.String() + "$")
	if err != nil {
		return err
	}
	text = strings.ReplaceAll(text, "\t", " ")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if !whole.MatchString(text) {
		return fmt.Errorf("it prints\n%s\nthe page shows\n%s", text, shown)
	}
	return nil
}

// Run runs the blocks of a page in a folder, one after the other, until one fails or prints
// something else than is shown. Each may take a time.
func Run(ctx context.Context, page string, blocks []Block, dir string, each time.Duration) error {
	for _, b := range blocks {
		if err := b.run(ctx, dir, each); err != nil {
			return fmt.Errorf("%s:%d: %w", page, b.Line, err)
		}
	}
	return nil
}

func (b Block) run(ctx context.Context, dir string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// A file, which what runs on in the background may keep open.
	out, err := os.CreateTemp("", "page-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", b.Script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	failed := cmd.Run()
	text, err := os.ReadFile(out.Name())
	if err != nil {
		return err
	}
	said := string(bytes.ToValidUTF8(text, []byte("?")))
	if failed != nil {
		return errors.Join(fmt.Errorf("%w: %s", failed, said), context.Cause(ctx))
	}
	if b.Shown == nil {
		return nil
	}
	return Compare(*b.Shown, said)
}
