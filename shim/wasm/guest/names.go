package guest

import (
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/format/rustname"
)

// name puts the functions' names into a stack trace: a module that was loaded without them has only
// their numbers there, each at the start of a line. Rust's names are shown as their author wrote them.
func (p *process) name(stack string) string {
	if !p.config.Load.Names {
		return stack
	}
	content, err := os.ReadFile(path.Join(p.guest.cache, compile.NamesName))
	if err != nil {
		return stack
	}
	names := format.ReadNames(content)
	frame := regexp.MustCompile(`(?m)^\t\.\$[0-9]+\(`)
	return frame.ReplaceAllStringFunc(stack, func(call string) string {
		number := call[len("\t.$") : len(call)-len("(")]
		index, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return call
		}
		function := rustname.Demangle(names.Function(uint32(index)))
		if function == "" {
			function = "$" + number
		}
		return "\t" + names.Module + "." + function + "("
	})
}

// maxName is how long a function's name in a message may be.
const maxName = 256

// trapped is the function at the top of a stack trace, "" if it is not told, or not fit to be
// shown: "\tmodule.function(i32,i64) i32", of which the module's name is left out where it is
// empty.
func trapped(stack string) string {
	frame := regexp.MustCompile(`(?m)^\t(\S.*?)\([a-z0-9,]*\)`).FindStringSubmatch(stack)
	if frame == nil || len(frame[1]) > maxName || strings.ContainsFunc(frame[1], func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return strings.TrimPrefix(frame[1], ".")
}
