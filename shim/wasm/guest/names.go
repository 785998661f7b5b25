package guest

import (
	"cmp"
	"os"
	"path"
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
	var named strings.Builder
	for line := range strings.SplitAfterSeq(stack, "\n") {
		named.WriteString(nameFrame(line, names))
	}
	return named.String()
}

// nameFrame names the function of a line of the form "\t.$number(", if it is one.
func nameFrame(line string, names format.Names) string {
	call, numbered := strings.CutPrefix(line, "\t.$")
	number, rest, called := strings.Cut(call, "(")
	index, err := strconv.ParseUint(number, 10, 32)
	if !numbered || !called || err != nil {
		return line
	}
	function := cmp.Or(rustname.Demangle(names.Function(uint32(index))), "$"+number)
	return "\t" + names.Module + "." + function + "(" + rest
}

// maxName is how long a function's name in a message may be.
const maxName = 256

// trapped is the function at the top of a stack trace, "" if it is not told, or not fit to be
// shown: "\tmodule.function(i32,i64) i32", of which the module's name is left out where it is
// empty.
func trapped(stack string) string {
	for line := range strings.SplitSeq(stack, "\n") {
		call, indented := strings.CutPrefix(line, "\t")
		if !indented || call == "" || strings.ContainsRune(" \t\f\r", rune(call[0])) {
			continue
		}
		for at := 1; at < len(call); at++ {
			if call[at] != '(' || !strings.HasPrefix(strings.TrimLeft(call[at+1:], signature), ")") {
				continue
			}
			name := call[:at]
			if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
				return ""
			}
			return strings.TrimPrefix(name, ".")
		}
	}
	return ""
}

// signature are the characters of which the parameters of a function in a stack trace are.
const signature = "abcdefghijklmnopqrstuvwxyz0123456789,"
