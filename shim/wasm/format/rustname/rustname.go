// Package rustname makes the names that Rust's compiler gives functions readable: those of its
// legacy mangling (_ZN…17h…E) and of version 0 (_R…, RFC 2603). What is no such name, or is not
// understood, stays as it is. Names come from strangers: depth and length are bounded.
package rustname

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a name.
const (
	maxLength = 2000 // bytes, of a name and of what it becomes
	maxDepth  = 100
)

// Demangle returns the path that a name stands for, or the name.
func Demangle(name string) string {
	if len(name) > maxLength {
		return name
	}
	var out string
	var ok bool
	switch {
	case strings.HasPrefix(name, "_ZN"):
		out, ok = legacy(name[len("_ZN"):])
	case strings.HasPrefix(name, "_R"):
		out, ok = version0(name[len("_R"):])
	}
	if !ok || out == "" || len(out) > maxLength || !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return name
	}
	return out
}

// legacy reads parts, each after its length, the last of which is a hash; C++ names have none.
func legacy(rest string) (string, bool) {
	var parts []string
	for !strings.HasPrefix(rest, "E") {
		n, after, ok := decimal(rest)
		if !ok || n == 0 || n > len(after) {
			return "", false
		}
		parts, rest = append(parts, after[:n]), after[n:]
	}
	last := len(parts) - 1
	if last < 1 || !isHash(parts[last]) || rest != "E" && !strings.HasPrefix(rest, "E.") {
		return "", false
	}
	for i, part := range parts[:last] {
		var ok bool
		if parts[i], ok = unescape(part); !ok {
			return "", false
		}
	}
	return strings.Join(parts[:last], "::"), true
}

func isHash(part string) bool {
	return len(part) == 17 && part[0] == 'h' && strings.Trim(part[1:], "0123456789abcdef") == ""
}

// decimal reads a length, which has no zeros before it.
func decimal(s string) (n int, rest string, ok bool) {
	if strings.HasPrefix(s, "0") {
		return 0, s[1:], true
	}
	for s != "" && s[0] >= '0' && s[0] <= '9' {
		if n = n*10 + int(s[0]-'0'); n > maxLength {
			return 0, "", false
		}
		s, ok = s[1:], true
	}
	return n, s, ok
}

// escapes are how the legacy mangling writes what is no letter.
var escapes = strings.NewReplacer(
	"$SP$", "@", "$BP$", "*", "$RF$", "&", "$LT$", "<", "$GT$", ">", "$LP$", "(", "$RP$", ")", "$C$", ",",
	"$u20$", " ", "$u22$", `"`, "$u27$", "'", "$u2b$", "+", "$u3b$", ";", "$u5b$", "[", "$u5d$", "]", "$u7b$", "{", "$u7d$", "}", "$u7e$", "~", "$u3d$", "=",
	"..", "::",
)

func unescape(part string) (string, bool) {
	if strings.HasPrefix(part, "_$") {
		part = part[1:]
	}
	out := escapes.Replace(part)
	return out, !strings.Contains(out, "$")
}
