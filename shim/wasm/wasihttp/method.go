package wasihttp

import (
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
)

// maxTarget bounds a method, a scheme, an authority and a path of a guest's request, in bytes.
const maxTarget = 64 << 10

// methods are the cases of the variant method, without the last: other.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// schemes are the cases of the variant scheme, without the last: other.
var schemes = []string{"http", "https"}

// putVariant writes a method or a scheme: a case, or the last case with the string.
func putVariant(c *canonical.Call, at uint32, cases []string, value string) {
	for i, name := range cases {
		if name == value {
			c.Put8(at, uint8(i))
			return
		}
	}
	c.Put8(at, uint8(len(cases)))
	c.PutText(at+4, value)
}

// readVariant reads a flat method or scheme: its discriminant and a string.
func readVariant(c *canonical.Call, p []uint64, cases []string) string {
	if i := canonical.Discriminant(p[0], uint32(len(cases))+1); i < uint32(len(cases)) {
		return cases[i]
	}
	return readText(c, p[1], p[2])
}

// readText copies a string, or more than maxTarget bytes of it, which no check lets pass.
func readText(c *canonical.Call, at, length uint64) string {
	b := c.Text(at, length)
	return string(b[:min(len(b), maxTarget+1)])
}

// putOptionalText writes an option<string>.
func putOptionalText(c *canonical.Call, at uint32, s string, some bool) {
	c.PutBool(at, some)
	if some {
		c.PutText(at+4, s)
	}
}

// fits reports whether a part of a request is not too long.
func fits(s string) bool { return len(s) <= maxTarget }

func validMethod(s string) bool { return fits(s) && fields.ValidName(s) }

// validScheme follows RFC 3986.
func validScheme(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if letter := 'a' <= c && c <= 'z'; !letter && (i == 0 || !('0' <= s[i] && s[i] <= '9' || strings.IndexByte("+-.", s[i]) >= 0)) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// validUserinfo follows RFC 3986.
func validUserinfo(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("/?#@\\<>^`{|}[]\"", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// validAuthority3 is what WASI 0.3 takes: also with a userinfo.
func validAuthority3(s string) bool {
	at := strings.LastIndexByte(s, '@')
	return validAuthority(s[at+1:]) && (at < 0 || validUserinfo(s[:at])) && fits(s)
}

// validPath3 is what WASI 0.3 takes: also what is relative.
func validPath3(s string) bool { return validPath("/"+s) && fits(s) }

// validAuthority reports whether s is a host, with a port or without.
func validAuthority(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
		if port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" || len(port) == 5 && port > "65535" {
			return false
		}
	}
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		inner, bracketed = strings.CutSuffix(inner, "]")
		return bracketed && fits(s) && inner != "" && strings.Trim(inner, "0123456789abcdefABCDEF:.") == ""
	}
	for i := range len(host) {
		if c := host[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("/?#@\\<>^`{|}[]\":", c) >= 0 {
			return false
		}
	}
	return fits(s) && host != ""
}

// validPath reports whether s is a path with a query: it has no fragment.
func validPath(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || strings.IndexByte("#<>\\^`|", c) >= 0 {
			return false
		}
	}
	return fits(s) && (s == "" || s[0] == '/' || s[0] == '?')
}
