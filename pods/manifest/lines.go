package manifest

import (
	"strconv"
	"strings"

	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// lines finds the lines of fields in a document that is refused.
type lines struct {
	data []byte // with a line break for each line above it
	root *goyaml.Node
	done bool
}

// of is the line of a field, as "spec.containers[0].image", of the object that stands at an item of a
// List, or of the document's if item is below 0. What is not there has the line of what it is missing
// in. 0 = it cannot be told.
func (l *lines) of(item int, path string) int {
	if !l.done {
		l.done = true
		var doc goyaml.Node
		if err := goyaml.Unmarshal(l.data, &doc); err == nil && len(doc.Content) == 1 {
			l.root = doc.Content[0]
		}
	}
	if l.root == nil {
		return 0
	}
	if item >= 0 {
		path = "items[" + strconv.Itoa(item) + "]." + path
	}
	node, line := l.root, l.root.Line
	for _, part := range steps(path) {
		next, at := step(node, part)
		if next == nil {
			break
		}
		node, line = next, at
	}
	return line
}

// steps are the names and indexes of a path.
func steps(path string) []string {
	var parts []string
	for path != "" {
		end := strings.IndexAny(path, ".[")
		switch {
		case end < 0:
			return append(parts, path)
		case end > 0:
			parts = append(parts, path[:end])
		}
		if path[end] == '.' {
			path = path[end+1:]
			continue
		}
		inside, rest, ok := strings.Cut(path[end+1:], "]")
		if !ok {
			return parts
		}
		parts, path = append(parts, inside), rest
	}
	return parts
}

// step is what stands in a node under a name or an index, and its line: for a field, its name's.
func step(node *goyaml.Node, part string) (*goyaml.Node, int) {
	if node.Kind == goyaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case goyaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == part {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case goyaml.SequenceNode:
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	}
	return nil, 0
}
