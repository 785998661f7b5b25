package server

import (
	"encoding/json"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// TestVerboseStatusOfImage has imageSpec be the whole configuration of an image, as other CRI
// servers show it: of a Linux image, and of an artifact.
func TestVerboseStatusOfImage(t *testing.T) {
	registry, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	api := imageServer(t)
	linux, err := oci.Packed(oci.Host(), oci.Program("app", []byte("#!")))
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := oci.Artifact([]byte("\x00asm\x01\x00\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	for handler, image := range map[string]v1.Image{"runc": linux, "wasm": artifact} {
		ref, err := registry.Push(t.Context(), "app:"+handler, image)
		if err != nil {
			t.Fatal(err)
		}
		spec := &runtime.ImageSpec{Image: ref, RuntimeHandler: handler}
		if _, err := api.PullImage(t.Context(), &runtime.PullImageRequest{Image: spec}); err != nil {
			t.Fatal(err)
		}
		answer, err := api.ImageStatus(t.Context(), &runtime.ImageStatusRequest{Image: spec, Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		var info struct{ ImageSpec json.RawMessage }
		if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
			t.Fatalf("%s: %v: %v", handler, answer.GetInfo(), err)
		}
		want, err := image.RawConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(info.ImageSpec); got != string(want) {
			t.Errorf("%s: imageSpec %s, want %s", handler, got, want)
		}
	}
}
