package run

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// environment resolves a container's variables in order, each with those
// before it, and answers them as a table too.
func environment(c *corev1.Container) ([]*runtime.KeyValue, map[string]string) {
	vars := map[string]string{}
	var list []*runtime.KeyValue
	for _, e := range c.Env {
		value := expand(e.Value, vars)
		vars[e.Name] = value
		list = append(list, &runtime.KeyValue{Key: e.Name, Value: []byte(value)})
	}
	return list, vars
}

func expandAll(texts []string, vars map[string]string) []string {
	var out []string
	for _, t := range texts {
		out = append(out, expand(t, vars))
	}
	return out
}

// expand replaces $(NAME) by the variable's value, as Kubernetes does in env, command and args: an
// unknown name stays as it stands, and $$ is a dollar sign that starts no reference.
func expand(text string, vars map[string]string) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:i])
		text = text[i+1:]
		switch text[0] {
		case '$':
			out.WriteByte('$')
			text = text[1:]
		case '(':
			end := strings.IndexByte(text, ')')
			if end < 0 {
				out.WriteByte('$')
				continue
			}
			if value, ok := vars[text[1:end]]; ok {
				out.WriteString(value)
			} else {
				out.WriteString("$" + text[:end+1])
			}
			text = text[end+1:]
		default:
			out.WriteByte('$')
		}
	}
}
