// Package target says what the method and the target of a guest's request may be.
package target

import (
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
)

// Max bounds a method, a scheme, an authority and a path, in bytes.
const Max = 64 << 10

// fits reports whether a part of a request is not too long.
func fits(s string) bool { return len(s) <= Max }

// Method reports whether s is a method.
func Method(s string) bool { return fits(s) && fields.ValidName(s) }

// Scheme follows RFC 3986.
func Scheme(s string) bool {
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

// Authority3 is what WASI 0.3 takes: also with a userinfo.
func Authority3(s string) bool {
	at := strings.LastIndexByte(s, '@')
	return Authority(s[at+1:]) && (at < 0 || validUserinfo(s[:at])) && fits(s)
}

// Path3 is what WASI 0.3 takes: also what is relative.
func Path3(s string) bool { return Path("/"+s) && fits(s) }

// Authority reports whether s is a host, with a port or without.
func Authority(s string) bool {
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

// Path reports whether s is a path with a query: it has no fragment.
func Path(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || strings.IndexByte("#<>\\^`|", c) >= 0 {
			return false
		}
	}
	return fits(s) && (s == "" || s[0] == '/' || s[0] == '?')
}
