package build

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Check refuses a WebAssembly image in a pod that has no engine for it.
func (m *Maker) Check(pod state.Sandbox, img images.Image) error {
	if runtimeclass.Type(pod.HandlerType) == runtimeclass.WASM || !IsWasm(img) {
		return nil
	}
	return m.wrongHandler(pod)
}

func (m *Maker) wrongHandler(pod state.Sandbox) error {
	var names []string
	for _, h := range m.o.Handlers.All() {
		if h.Type == runtimeclass.WASM {
			names = append(names, h.Name)
		}
	}
	advice := "no handler of type wasm is configured"
	if len(names) > 0 {
		advice = "use a RuntimeClass with handler " + strings.Join(names, " or ")
	}
	return fmt.Errorf("the image is WebAssembly, which handler %q does not run (%s): %w", pod.HandlerName, advice, errdefs.ErrInvalidArgument)
}

// IsWasm says whether the platform of an image is WebAssembly.
func IsWasm(img images.Image) bool {
	return img.Kind == images.Module || strings.HasPrefix(img.Platform.Architecture, "wasm")
}

// Ready has the image's module compiled and read, if this server has not done that yet: what the
// pod's own processes would compile and read first would count to the pod. One among an image's
// files is the builder's.
func (m *Maker) Ready(ctx context.Context, img images.Image) {
	if m.o.Modules != nil && img.Kind == images.Module {
		m.o.Modules.Ready(ctx, m.o.Images.ModulePath(img), img.Module.Digest.String())
	}
}
