package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// pulled is an image that the server has pulled for a handler.
func pulled(t *testing.T, api *imageAPI, registry *oci.Registry, image v1.Image, handler string) *runtime.ImageSpec {
	t.Helper()
	ref, err := registry.Push(t.Context(), "app:"+handler, image)
	if err != nil {
		t.Fatal(err)
	}
	spec := &runtime.ImageSpec{Image: ref, RuntimeHandler: handler}
	if _, err := api.PullImage(t.Context(), &runtime.PullImageRequest{Image: spec}); err != nil {
		t.Fatal(err)
	}
	return spec
}

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
		spec := pulled(t, api, registry, image, handler)
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

// TestVerboseStatusOfDamagedImage has imageSpec be null where the configuration is not what was
// stored, or not there, and shows the rest.
func TestVerboseStatusOfDamagedImage(t *testing.T) {
	registry, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	image, err := oci.Packed(oci.Host(), oci.Program("app", []byte("#!")))
	if err != nil {
		t.Fatal(err)
	}
	api := imageServer(t)
	spec := pulled(t, api, registry, image, "runc")
	config, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(t.TempDir()), "*", "images", "content", "blobs", "sha256", config.Hex))
	if err != nil || len(found) != 1 {
		t.Fatalf("the configuration is in %v, %v", found, err)
	}
	for what, damage := range map[string]func() error{
		"zeros":   func() error { return os.WriteFile(found[0], make([]byte, 100), 0o644) },
		"missing": func() error { return os.Remove(found[0]) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		answer, err := api.ImageStatus(t.Context(), &runtime.ImageStatusRequest{Image: spec, Verbose: true})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if info := answer.GetInfo()["info"]; !strings.Contains(info, `"imageSpec":null`) || !strings.Contains(info, `"platform"`) {
			t.Errorf("%s: %s", what, info)
		}
	}
}
