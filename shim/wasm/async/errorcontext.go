package async

import "github.com/sunaba-project/sunaba/shim/wasm/canonical"

// maxText bounds the text of an error context, in bytes; a longer one is cut.
const maxText = 4096

// errorContext is the resource error-context.
type errorContext struct{ text string }

// Held implements canonical.Sized.
func (e *errorContext) Held() int { return len(e.text) }

// Drop implements canonical.Resource.
func (*errorContext) Drop() {}

func errorContextNew(c *canonical.Call, p []uint64, _ uint32) error {
	b := c.Text(p[0], p[1])
	if len(b) > maxText {
		end := maxText
		for end > 0 && b[end]&0xc0 == 0x80 { // within a character
			end--
		}
		b = b[:end]
	}
	p[0] = uint64(c.Add(&errorContext{string(b)}, 0))
	return nil
}

func errorContextMessage(c *canonical.Call, p []uint64, _ uint32) error {
	e, at := canonical.Get[*errorContext](c, p[0]), uint32(p[1])
	if at%4 != 0 {
		canonical.Trapf("pointer %#x of a string is not aligned to 4", at)
	}
	c.View(at, 8)
	c.PutText(at, e.text)
	return nil
}
