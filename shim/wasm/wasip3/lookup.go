package wasip3

import (
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// lookupCodes are the cases of the error-code of wasi:sockets/ip-name-lookup. What is missing is
// other.
var lookupCodes = map[error]uint8{
	codes.AccessDenied: 0, codes.InvalidArgument: 1, codes.NameUnresolvable: 2,
	codes.TemporaryResolverFailure: 3, codes.PermanentResolverFailure: 4,
}

const otherLookup = 5

func putLookupCode(c *canonical.Call, at uint32, err error) {
	code, known := lookupCodes[err]
	if !known {
		code = otherLookup
		c.Put8(at+codeAlign, 0) // there is no text
	}
	c.Put8(at, code)
}

func lookupCode(size, align uint32) canonical.Answer {
	return canonical.Result(max(size, codeSize), max(align, codeAlign), putLookupCode)
}

// resolveAddresses looks a name up within the call, which waits, as that of WASI 0.2 does.
func resolveAddresses(c *canonical.Call, p []uint64, out uint32) error {
	name, err := wasip2.ReadName(c, p[0], p[1])
	if err != nil {
		return err
	}
	addresses, err := wasip2.Of(c).Resolve(name)
	if err != nil {
		return err
	}
	const size, align = 18, 2
	at := c.PutList(out, len(addresses), size, align)
	for _, ip := range addresses {
		wasip2.PutIP(c, at, ip)
		at += size
	}
	return nil
}
