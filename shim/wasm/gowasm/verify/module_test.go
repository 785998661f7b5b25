package verify

import "testing"

// A function of which a branch leads out with a 0 does return 0.
func TestNeverZero(t *testing.T) {
	const i32 = 0x7f
	for name, c := range map[string]struct {
		body  []byte
		never bool
	}{
		"a number other than 0":       {[]byte{0, opI32Const, 1, opEnd}, true},
		"0":                           {[]byte{0, opI32Const, 0, opEnd}, false},
		"unreachable":                 {[]byte{0, opUnreachable, opEnd}, true},
		"return of a number":          {[]byte{0, opI32Const, 1, opReturn, opUnreachable, opEnd}, true},
		"return of 0":                 {[]byte{0, opI32Const, 0, opReturn, opUnreachable, opEnd}, false},
		"branch out":                  {[]byte{0, opI32Const, 0, opBr, 0, opUnreachable, opEnd}, false},
		"branch out if":               {[]byte{0, opI32Const, 0, opLocalGet, 0, opBrIf, 0, opUnreachable, opEnd}, false},
		"branch out of a block":       {[]byte{0, opBlock, 0x40, opI32Const, 0, opBr, 1, opEnd, opUnreachable, opEnd}, false},
		"branch within the function":  {[]byte{0, opBlock, 0x40, opBr, 0, opEnd, opUnreachable, opEnd}, true},
		"branch to an if within":      {[]byte{0, opLoop, 0x40, opLocalGet, 0, opBrIf, 0, opEnd, opI32Const, 1, opEnd}, true},
		"table that leads out":        {[]byte{0, opBlock, i32, opI32Const, 0, opLocalGet, 0, opBrTable, 1, 0, 1, opEnd, opUnreachable, opEnd}, false},
		"table within":                {[]byte{0, opBlock, 0x40, opLocalGet, 0, opBrTable, 1, 0, 0, opEnd, opUnreachable, opEnd}, true},
		"more than the body is there": {[]byte{0, opI32Const}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := neverEndsWithZero(c.body); got != c.never {
				t.Errorf("never 0: %v, want %v", got, c.never)
			}
		})
	}
}
