package compile

import (
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

// Foresight is what is known of the steps before a module is compiled: why one will not be taken, "" where nothing is seen that
// speaks against it. Compiling finds the rest: code that uses its data segments, machine code that is too small to be shared.
type Foresight struct{ Image, Bare string }

// Foresee looks at the sections of a module.
func Foresee(sections []format.Section) Foresight {
	lean, _ := format.Strip(sections)
	if !isOrdered(lean) {
		const disorder = "the data sections are not where they belong"
		return Foresight{Image: disorder, Bare: disorder}
	}
	var f Foresight
	_, f.Image = worthyImage(lean)
	if _, ok := bare(lean); !ok {
		f.Bare = "there are no functions"
	} else if wazeroversion.Check() != nil {
		f.Bare = "the layout of the engine's cache is known for wazero " + wazeroversion.Checked + " only"
	}
	return f
}

// Worth is the size in bytes from which data or code has a file of its own: opening and mapping one
// takes as long as copying as much.
const Worth = 128 << 10

// worthyImage is newImage, which also declines what is too small.
func worthyImage(lean []format.Section) (_ image, declined string) {
	img, declined := newImage(lean)
	if declined == "" && len(img.bytes) < Worth {
		declined = fmt.Sprintf("the data takes less than %d KiB", Worth>>10)
	}
	return img, declined
}
