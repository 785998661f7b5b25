// Command browser drives a headless Chromium for tests: it reads commands from standard input, one
// JSON object a line, and answers each with a line. It is a module of its own, so that what ships
// does not depend on what drives a browser.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// command is one of open, eval, key, view, shot, tree, log and scripts.
type command struct {
	Do     string
	URL    string // open
	JS     string // eval: an expression, whose promise is waited for
	Key    string // key: Tab, Shift+Tab, Enter, or text to type
	Width  int64  // view, in CSS pixels
	Height int64
	Dark   bool
	File   string // shot, a PNG of what is in view
	Off    bool   // scripts
}

// answer has the result of a command, or its error.
type answer struct {
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// node is a node of the accessibility tree that a screen reader tells of.
type node struct {
	Role  string            `json:"role"`
	Name  string            `json:"name"`
	Props map[string]string `json:"props,omitempty"`
}

// commandTime bounds each command.
const commandTime = 30 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return errors.New("usage: browser CHROMIUM PROFILE-FOLDER")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(os.Args[1]), chromedp.UserDataDir(os.Args[2]), chromedp.NoSandbox, // root has no sandbox in Chromium
		chromedp.Flag("no-proxy-server", true),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	b := &browser{ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		return err
	}
	for _, domain := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable, accessibility.Enable} {
		if _, err := chromedp.Call(ctx, domain, cdp.Empty{}); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c command
		var a answer
		err := json.Unmarshal(lines.Bytes(), &c)
		if err == nil {
			a.Result, err = b.obey(c)
		}
		if err != nil {
			a = answer{Error: fmt.Sprintf("%s: %v", c.Do, err)}
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), chromedp.Cancel(ctx))
}

type browser struct {
	ctx context.Context

	mu  sync.Mutex
	log []string
}

// listen keeps what a console shows as an error or a warning.
func (b *browser) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			text = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		text = "console: " + string(e.Type)
		for _, arg := range e.Args {
			text += " " + string(arg.Value)
		}
	}
	if text == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, text)
}

func (b *browser) obey(c command) (any, error) {
	ctx, cancel := context.WithTimeout(b.ctx, commandTime)
	defer cancel()
	switch c.Do {
	case "open":
		return nil, chromedp.Do(ctx, chromedp.Navigate(c.URL))
	case "eval":
		raw, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](c.JS, chromedp.EvalAwaitPromise))
		if len(raw) == 0 {
			raw = []byte("null")
		}
		return json.RawMessage(raw), err
	case "key":
		switch c.Key {
		case "Tab":
			return nil, chromedp.Do(ctx, chromedp.KeyEvent(kb.Tab))
		case "Shift+Tab":
			return nil, chromedp.Do(ctx, chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(kb.ModifierShift)))
		case "Enter":
			return nil, chromedp.Do(ctx, chromedp.KeyEvent(kb.Enter))
		}
		return nil, chromedp.Do(ctx, chromedp.KeyEvent(c.Key))
	case "view":
		return nil, view(ctx, c)
	case "shot":
		shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(c.File, shot, 0o644)
	case "tree":
		return tree(ctx)
	case "log":
		b.mu.Lock()
		defer b.mu.Unlock()
		said := append([]string{}, b.log...)
		b.log = nil
		return said, nil
	case "scripts":
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: c.Off})
		return nil, err
	}
	return nil, errors.New("no such command")
}

// view sets the size and the colors that the user prefers.
func view(ctx context.Context, c command) error {
	scheme := "light"
	if c.Dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	if err != nil {
		return err
	}
	_, err = chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: c.Width, Height: c.Height, DeviceScaleFactor: 1})
	return err
}

// tree is the accessibility tree, in its order, without what is ignored.
func tree(ctx context.Context) ([]node, error) {
	full, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil || len(full.Nodes) == 0 {
		return nil, err
	}
	byID := map[accessibility.NodeID]*accessibility.Node{}
	for _, n := range full.Nodes {
		byID[n.NodeID] = n
	}
	var all []node
	var walk func(n *accessibility.Node)
	walk = func(n *accessibility.Node) {
		if n == nil {
			return
		}
		if !n.Ignored {
			out := node{Role: text(n.Role), Name: text(n.Name), Props: map[string]string{}}
			for _, p := range n.Properties {
				out.Props[string(p.Name)] = text(p.Value)
			}
			all = append(all, out)
		}
		for _, id := range n.ChildIDs {
			walk(byID[id])
		}
	}
	walk(full.Nodes[0])
	return all, nil
}

func text(v *accessibility.Value) string {
	if v == nil || len(v.Value) == 0 {
		return ""
	}
	var s any
	if json.Unmarshal(v.Value, &s) != nil || s == nil {
		return ""
	}
	return fmt.Sprint(s)
}
