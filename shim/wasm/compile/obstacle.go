package compile

import (
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

// Obstacles says, before a module is compiled, why steps will not be taken; "" = no obstacle is
// known. Compiling finds the others: code that uses its data segments, machine code that is too
// small to be shared.
type Obstacles struct{ Image, Bare string }

// FindObstacles examines the sections of a module.
func FindObstacles(sections []format.Section) Obstacles {
	lean, _ := format.Strip(sections)
	if !isOrdered(lean) {
		const disorder = "the data sections are not where they belong"
		return Obstacles{Image: disorder, Bare: disorder}
	}
	var o Obstacles
	_, o.Image = worthyImage(lean)
	if _, ok := withoutBodies(lean); !ok {
		o.Bare = "there are no functions"
	} else if wazeroversion.Check() != nil {
		o.Bare = "the layout of the engine's cache is known for wazero " + wazeroversion.Checked + " only"
	}
	return o
}

// Worth is the size in bytes from which data or code has a file of its own: opening and mapping a
// file takes as long as copying that many bytes.
const Worth = 128 << 10

// worthyImage is newImage, and also declines an image that is too small.
func worthyImage(lean []format.Section) (_ image, declined string) {
	img, declined := newImage(lean)
	if declined == "" && len(img.bytes) < Worth {
		declined = fmt.Sprintf("the data takes less than %d KiB", Worth>>10)
	}
	return img, declined
}
