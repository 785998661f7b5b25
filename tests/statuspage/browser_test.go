package statuspage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// browser is a headless Chromium with one page.
type browser struct {
	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Scanner
}

// item is a node of the accessibility tree.
type item struct {
	Role, Name string
	Props      map[string]string
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	chromium, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		t.Fatalf("%v: tests/setup.sh --tests installs it", err)
	}
	profile, err := os.MkdirTemp(world.folder, "chromium-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join("../..", program), chromium, profile)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, in: in, lines: bufio.NewScanner(out)}
	b.lines.Buffer(nil, 8<<20)
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the browser: %v", err)
		}
	})
	return b
}

// do sends a command and decodes what it answers.
func (b *browser) do(result any, name string, with ...any) {
	b.t.Helper()
	command := map[string]any{"do": name}
	for i := 0; i+1 < len(with); i += 2 {
		command[with[i].(string)] = with[i+1]
	}
	if err := json.NewEncoder(b.in).Encode(command); err != nil {
		b.t.Fatal(err)
	}
	if !b.lines.Scan() {
		b.t.Fatalf("%s: the browser ended: %v", name, b.lines.Err())
	}
	var answer struct {
		Result json.RawMessage
		Error  string
	}
	if err := json.Unmarshal(b.lines.Bytes(), &answer); err != nil {
		b.t.Fatal(err)
	}
	if answer.Error != "" {
		b.t.Fatalf("%v: %s", command, answer.Error)
	}
	if result != nil && len(answer.Result) > 0 {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			b.t.Fatalf("%s: %v in %s", name, err, answer.Result)
		}
	}
}

// text is the value of an expression.
func (b *browser) text(js string) (out string) {
	b.t.Helper()
	b.do(&out, "eval", "js", "(async () => String(await ("+js+")))()")
	return out
}

// within says whether an expression holds within so many seconds.
func (b *browser) within(seconds int, js string) bool {
	b.t.Helper()
	return b.text(fmt.Sprintf(`(async () => { for (const end = Date.now() + %d000; Date.now() < end; await new Promise(r => setTimeout(r, 40))) if (%s) return "yes"; return "no" })()`, seconds, js)) == "yes"
}

// until waits for an expression to hold.
func (b *browser) until(what, js string) {
	b.t.Helper()
	if !b.within(25, js) {
		b.t.Fatalf("not in time: %s\n%s\nthe console said %q", what, b.text("document.body.innerText"), b.console())
	}
}

// changed is what Chromium says of requests that it ends because an address of the machine has come
// or gone, as when the first pod gets its network.
const changed = "net::ERR_NETWORK_CHANGED"

// open opens a page and waits until an expression holds. A page of which a file was not loaded
// because addresses of the machine changed is opened again, as a person would.
func (b *browser) open(url, js string) {
	b.t.Helper()
	for range 5 {
		b.do(nil, "open", "url", url)
		if b.within(5, js) {
			return
		}
		if said := b.console(); !slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, changed) }) {
			b.t.Logf("the console said %q", said)
			break
		}
	}
	b.until("the page "+url, js)
}

// console is what was said since it was asked last.
func (b *browser) console() (said []string) {
	b.t.Helper()
	b.do(&said, "log")
	return said
}

// key presses keys, one after another.
func (b *browser) key(names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.do(nil, "key", "key", name)
	}
}

func (b *browser) view(width, height int, dark bool) {
	b.t.Helper()
	b.do(nil, "view", "width", width, "height", height, "dark", dark)
}

// quiet is a check that the console has no error and no warning. excuse are texts of some that may
// be there.
func (b *browser) quiet(excuse ...string) {
	b.t.Helper()
	excuse = append(excuse, changed)
	for _, line := range b.console() {
		if !slices.ContainsFunc(excuse, func(e string) bool { return strings.Contains(line, e) }) {
			b.t.Errorf("the console says %s", line)
		}
	}
}

// tree is what a screen reader is told.
func (b *browser) tree() (all []item) {
	b.t.Helper()
	b.do(&all, "tree")
	return all
}

// has checks that a tree has an item of a role whose name contains a text.
func has(t *testing.T, tree []item, role, name string) {
	t.Helper()
	if !slices.ContainsFunc(tree, func(i item) bool { return i.Role == role && strings.Contains(i.Name, name) }) {
		var others []string
		for _, i := range tree {
			if i.Role == role {
				others = append(others, fmt.Sprintf("%q", i.Name))
			}
		}
		t.Errorf("no %s %q for a screen reader, only %s", role, name, strings.Join(others, ", "))
	}
}
