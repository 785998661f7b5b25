package stdio

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// cut runs the splitter over chunks and renders its records.
func cut(limit int, chunks ...[]byte) []string {
	var got []string
	emit := func(tag byte, content []byte) { got = append(got, fmt.Sprintf("%c %s", tag, content)) }
	s := splitter{max: limit}
	for _, c := range chunks {
		s.write(c, emit)
	}
	s.flush(emit)
	return got
}

// want is the same, said in the plainest way over the whole stream.
func want(limit int, all []byte) []string {
	var out []string
	lines := bytes.Split(all, []byte("\n"))
	for i, line := range lines {
		last := i == len(lines)-1
		if last && len(line) == 0 {
			break
		}
		if !last {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		for len(line) > limit {
			out = append(out, "P "+string(line[:limit]))
			line = line[limit:]
		}
		if last {
			out = append(out, "P "+string(line))
		} else {
			out = append(out, "F "+string(line))
		}
	}
	return out
}

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct {
		chunks string // separated by |
		want   string // separated by |
	}{
		"nothing":                    {"", ""},
		"a line":                     {"abc\n", "F abc"},
		"an empty line":              {"\n", "F "},
		"two lines":                  {"a\nb\n", "F a|F b"},
		"a line in two chunks":       {"a|b\n", "F ab"},
		"newline alone in a chunk":   {"ab|\n", "F ab"},
		"carriage return":            {"ab\r\n", "F ab"},
		"carriage return straddling": {"ab\r|\n", "F ab"},
		"only one carriage return":   {"a\r\r\n", "F a\r"},
		"carriage return within":     {"a\rb\n", "F a\rb"},
		"exactly the limit":          {"abcd\n", "F abcd"},
		"the limit, then newline":    {"abcd|\n", "F abcd"},
		"the limit and \\r":          {"abcd\r\n", "F abcd"},
		"the limit and \\r, chunks":  {"abcd|\r|\n", "F abcd"},
		"the limit, \\r and more":    {"abcd\r|x\n", "P abcd|F \rx"},
		"one more":                   {"abcde\n", "P abcd|F e"},
		"one more, chunks":           {"abcde|\n", "P abcd|F e"},
		"twice the limit":            {"abcdefgh\n", "P abcd|F efgh"},
		"much more":                  {"abcdefghi\nx\n", "P abcd|P efgh|F i|F x"},
		"no last newline":            {"a\nbc", "F a|P bc"},
		"no last newline, long":      {"abcdef", "P abcd|P ef"},
		"no last newline, \\r":       {"ab\r", "P ab\r"},
	} {
		t.Run(name, func(t *testing.T) {
			var chunks [][]byte
			for _, s := range strings.Split(c.chunks, "|") {
				chunks = append(chunks, []byte(s))
			}
			if got := strings.Join(cut(4, chunks...), "|"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestSplitDoesNotDependOnChunks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		limit := 1 + rnd.IntN(6)
		all := make([]byte, rnd.IntN(40))
		for i := range all {
			all[i] = "ab\r\n\n"[rnd.IntN(5)]
		}
		checkSplit(t, limit, all, func(n int) int { return 1 + rnd.IntN(n) })
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("hello\r\nworld"), uint8(4), uint8(3))
	f.Fuzz(func(t *testing.T, all []byte, limit, step uint8) {
		checkSplit(t, 1+int(limit), all, func(n int) int { return min(n, 1+int(step)) })
	})
}

func checkSplit(t *testing.T, limit int, all []byte, next func(n int) int) {
	t.Helper()
	var chunks [][]byte
	for rest := all; len(rest) > 0; {
		n := next(len(rest))
		chunks = append(chunks, slices.Clone(rest[:n]))
		rest = rest[n:]
	}
	if got, want := cut(limit, chunks...), want(limit, all); !slices.Equal(got, want) {
		t.Fatalf("limit %d, chunks %q: got %q, want %q", limit, chunks, got, want)
	}
}
