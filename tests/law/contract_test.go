package law

import (
	"testing"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim"
)

// The shim binary must not link what the server knows, and the server talks to a shim over a socket
// and by bundles. So the words of bundles stand on both sides; here they are held equal.
func TestServerAndShimWriteTheSameWords(t *testing.T) {
	for _, w := range []struct{ server, shim string }{
		{string(runtimeclass.OCI), shim.HandlerTypeOCI},
		{string(runtimeclass.WASM), shim.HandlerTypeWasm},
		{spec.ContainerType, shim.AnnotationContainerType},
		{spec.SandboxID, shim.AnnotationSandboxID},
		{spec.HandlerType, shim.AnnotationHandlerType},
		{spec.WasmModule, shim.AnnotationWasmModule},
		{spec.WasmDigest, shim.AnnotationWasmDigest},
		{spec.WasmName, shim.AnnotationWasmName},
		{spec.WasmListen, shim.AnnotationWasmListen},
		{spec.OptimizeGo, shim.AnnotationOptimizeGo},
		{spec.StopWait, shim.AnnotationStopWait},
		{spec.LogLimits, shim.AnnotationLogLimits},
		{spec.OneStep, shim.AnnotationOneStep},
	} {
		if w.server != w.shim {
			t.Errorf("the server writes %q, the shim reads %q", w.server, w.shim)
		}
	}
}
