package law

import (
	"testing"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

// The shim binary does not link the table of handlers, so the types' names stand on both sides.
func TestServerAndShimNameHandlerTypesAlike(t *testing.T) {
	if string(runtimeclass.OCI) != annotation.OCI || string(runtimeclass.WASM) != annotation.Wasm {
		t.Errorf("the server writes %q and %q, the shim reads %q and %q", runtimeclass.OCI, runtimeclass.WASM, annotation.OCI, annotation.Wasm)
	}
}
