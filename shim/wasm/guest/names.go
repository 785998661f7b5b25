package guest

import (
	"os"
	"path"
	"regexp"
	"strconv"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// name puts the functions' names into a stack trace: a module that was loaded without them has only
// their numbers there, each at the beginning of a line.
func (p *process) name(stack string) string {
	if !p.config.Load.Names {
		return stack
	}
	content, err := os.ReadFile(path.Join(p.guest.cache, compile.NamesName))
	if err != nil {
		return stack
	}
	names := compile.ReadNames(content)
	frame := regexp.MustCompile(`(?m)^\t\.\$[0-9]+\(`)
	return frame.ReplaceAllStringFunc(stack, func(begin string) string {
		number := begin[len("\t.$") : len(begin)-len("(")]
		index, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return begin
		}
		function := names.Function(uint32(index))
		if function == "" {
			function = "$" + number
		}
		return "\t" + names.Module + "." + function + "("
	})
}
