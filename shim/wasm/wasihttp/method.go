package wasihttp

import (
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/target"
)

// methods are the cases of the variant method, without the last: other.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// schemes are the cases of the variant scheme, without the last: other.
var schemes = []string{"http", "https"}

// putVariant writes a method or a scheme: a case, or the last case with the string.
func putVariant(c *canonical.Call, at uint32, cases []string, value string) {
	if i := slices.Index(cases, value); i >= 0 {
		c.Put8(at, uint8(i))
		return
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

// readText copies a string, or more than target.Max bytes of it, which no check lets pass.
func readText(c *canonical.Call, at, length uint64) string {
	b := c.Text(at, length)
	return string(b[:min(len(b), target.Max+1)])
}

// putOptionalText writes an option<string>.
func putOptionalText(c *canonical.Call, at uint32, s string, some bool) {
	c.PutBool(at, some)
	if some {
		c.PutText(at+4, s)
	}
}
