package law

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/law/source"
)

// levels are the methods of slog.Logger that take a message and attributes.
var levels = []string{"Debug", "Info", "Warn", "Error"}

// message is a text that is logged.
type message struct {
	where, level, text string
	failure            bool // it has an attribute "error"
}

// An operator looks for "failed": what is logged with an error as a warning or an error says so.
func TestLoggedErrorsSayFailed(t *testing.T) {
	for _, m := range messages(t) {
		if m.failure && (m.level == "Warn" || m.level == "Error") && !strings.Contains(m.text, "failed") {
			t.Errorf("%s: %q is logged with an error and does not say \"failed\"", m.where, m.text)
		}
	}
}

// One text for success and failure lets nobody see which it was.
func TestNoTextForSuccessAndFailure(t *testing.T) {
	successes, failures := map[string]string{}, map[string]string{}
	for _, m := range messages(t) {
		if m.failure {
			failures[m.text] = m.where
		} else {
			successes[m.text] = m.where
		}
	}
	for text, where := range failures {
		if other := successes[text]; other != "" {
			t.Errorf("%s: %q is logged with an error, and without one in %s", where, text, other)
		}
	}
}

// An error is verb, object, cause: `open store "x": no space left`. Whoever logs it says that it
// failed.
func TestErrorsDoNotSayFailedTo(t *testing.T) {
	for _, f := range source.Production(sources(t)) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			if name := called(call); name != "fmt.Errorf" && name != "errors.New" {
				return true
			}
			if text, ok := literal(call.Args[0]); ok && strings.Contains(text, "failed to ") {
				t.Errorf("%s: error %q says \"failed to\"", f.Set.Position(call.Pos()), text)
			}
			return true
		})
	}
}

// messages are the texts that production code logs.
func messages(t *testing.T) []message {
	t.Helper()
	var all []message
	for _, f := range source.Production(sources(t)) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if m, ok := logged(f.Set, call); ok {
				all = append(all, m)
			}
			return true
		})
	}
	if len(all) < 50 {
		t.Fatalf("found %d messages: the law does not see what is logged", len(all))
	}
	return all
}

// logged reads a call of a logger: `logger.Warn("text", "key", value)`.
func logged(set *token.FileSet, call *ast.CallExpr) (message, bool) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return message{}, false
	}
	level := strings.TrimSuffix(sel.Sel.Name, "Context")
	args := call.Args
	if level != sel.Sel.Name {
		args = args[1:]
	}
	if !slices.Contains(levels, level) || len(args) == 0 {
		return message{}, false
	}
	text, ok := literal(args[0])
	if !ok {
		return message{}, false
	}
	m := message{where: set.Position(call.Pos()).String(), level: level, text: text, failure: withError(sel.X)}
	for n := 1; n < len(args); n += 2 {
		key, ok := literal(args[n])
		m.failure = m.failure || ok && key == "error"
	}
	return m, true
}

// withError says whether a logger has got the error before: `log.WithError(err)`.
func withError(logger ast.Expr) bool {
	call, ok := logger.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "WithError"
}

// literal is the text of a string, or of the literal that a sum of strings starts with.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		return literal(e.X)
	}
	return "", false
}

// called is the name of a called function: "fmt.Errorf".
func called(call *ast.CallExpr) string {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + sel.Sel.Name
}
