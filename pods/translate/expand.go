package translate

import (
	"fmt"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What the kernel takes when a program is started. References can double a value with each
// variable, so they are bounded here already.
const (
	// maxString is the longest argument or variable, with its name, in bytes (MAX_ARG_STRLEN).
	maxString = 128<<10 - 1
	// maxStrings is the most that all of them may take together, in bytes.
	maxStrings = 6 << 20
)

// Variables are a container's variables as a table.
func Variables(envs []*runtime.KeyValue) map[string]string {
	vars := make(map[string]string, len(envs))
	for _, e := range envs {
		vars[e.GetKey()] = string(e.GetValue())
	}
	return vars
}

// size is what variables take when a program is started, in bytes.
func size(envs []*runtime.KeyValue) int {
	n := 0
	for _, e := range envs {
		n += len(e.GetKey()) + len(e.GetValue()) + 2
	}
	return n
}

// Expand replaces $(NAME) by the variable's value, as Kubernetes does in env, command, args and
// subPathExpr: an unknown name stays as it is and is among missing, and $$ is a dollar sign that
// starts no reference.
//
// # Errors
//
// ErrInvalidArgument for a result of 128 KiB or more, which no program can be given.
func Expand(text string, vars map[string]string) (out string, missing []string, err error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			b.WriteString(text)
			break
		}
		b.WriteString(text[:i])
		text = text[i+1:]
		end := -1
		if text[0] == '(' {
			end = strings.IndexByte(text, ')')
		}
		switch {
		case text[0] == '$':
			b.WriteByte('$')
			text = text[1:]
		case end < 0:
			b.WriteByte('$')
		default:
			name := text[1:end]
			value, ok := vars[name]
			if !ok {
				missing = append(missing, name)
				value = "$(" + name + ")"
			}
			b.WriteString(value)
			text = text[end+1:]
		}
		if b.Len() > maxString {
			break
		}
	}
	if b.Len() > maxString {
		return "", nil, invalid("value", "it has more than %d bytes with its references replaced", maxString)
	}
	return b.String(), missing, nil
}

// expandAll replaces references in the texts of a field and takes their size from the budget.
func expandAll(field string, texts []string, vars map[string]string, budget *int) ([]string, error) {
	var list []string
	for i, text := range texts {
		out, _, err := Expand(text, vars)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", field, i, err)
		}
		if *budget -= len(out) + 1; *budget < 0 {
			return nil, invalid(fmt.Sprintf("%s[%d]", field, i), "variables and arguments have more than %d bytes together", maxStrings)
		}
		list = append(list, out)
	}
	return list, nil
}
