package oci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The platforms that the tests' indexes hold.
var (
	LinuxAMD64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	LinuxARM64 = v1.Platform{OS: "linux", Architecture: "arm64"}
	Wasip1     = v1.Platform{OS: "wasip1", Architecture: "wasm"}
	Wasip2     = v1.Platform{OS: "wasip2", Architecture: "wasm"}
	Unknown    = v1.Platform{OS: "unknown", Architecture: "unknown"}
)

// Host is the platform of this machine's own programs.
func Host() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// Media types of WebAssembly artifacts.
const (
	WasmConfig types.MediaType = "application/vnd.wasm.config.v0+json"
	WasmLayer  types.MediaType = "application/wasm"
)

// Image makes an OCI image for one platform.
func Image(platform v1.Platform, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	file := v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: v1.Time{Time: epoch}, Config: config, RootFS: v1.RootFS{Type: "layers"},
	}
	for _, layer := range layers {
		id, err := layer.DiffID()
		if err != nil {
			return nil, err
		}
		file.RootFS.DiffIDs = append(file.RootFS.DiffIDs, id)
		file.History = append(file.History, v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "tests/oci"})
	}
	data, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	return rawImage(types.OCIConfigJSON, data, layers...)
}

// Annotated is an image whose manifest says this too.
func Annotated(image v1.Image, annotations map[string]string) v1.Image {
	return mutate.Annotations(image, annotations).(v1.Image)
}

// Variant is one entry of an index.
type Variant struct {
	Platform v1.Platform
	Image    v1.Image
}

// Index makes an OCI image index of variants and adds what a build tool adds: an attestation
// manifest of platform unknown/unknown for the first of them.
func Index(variants ...Variant) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, v := range variants {
		platform := v.Platform
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: v.Image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	if len(variants) == 0 {
		return index, nil
	}
	subject, err := variants[0].Image.Digest()
	if err != nil {
		return nil, err
	}
	provenance, err := provenance(subject)
	if err != nil {
		return nil, err
	}
	return mutate.AppendManifests(index, mutate.IndexAddendum{Add: provenance, Descriptor: v1.Descriptor{
		Platform: &Unknown,
		Annotations: map[string]string{
			"vnd.docker.reference.type":   "attestation-manifest",
			"vnd.docker.reference.digest": subject.String(),
		},
	}}), nil
}

// provenance is an attestation manifest about subject.
func provenance(subject v1.Hash) (v1.Image, error) {
	statement := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v0.1","predicateType":"https://slsa.dev/provenance/v0.2","subject":[{"name":"_","digest":{"sha256":%q}}]}`, subject.Hex)
	layer := static.NewLayer([]byte(statement), "application/vnd.in-toto+json")
	digest, err := layer.Digest()
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`{"architecture":"unknown","os":"unknown","config":{},"rootfs":{"type":"layers","diff_ids":[%q]}}`, digest)
	return rawImage(types.OCIConfigJSON, []byte(config), layer)
}

// Title is the file name that an artifact tells of its module, as tools that push files do.
const Title = "program.wasm"

// titled is a layer that tells its file's name.
type titled struct {
	v1.Layer
	title string
}

// Descriptor implements partial.Describable.
func (l titled) Descriptor() (*v1.Descriptor, error) {
	d, err := partial.Descriptor(l.Layer)
	if err == nil {
		d.Annotations = map[string]string{"org.opencontainers.image.title": l.title}
	}
	return d, err
}

// Artifact makes a WebAssembly OCI artifact: config application/vnd.wasm.config.v0+json and one
// layer for each module, by the name Title. A well-formed one has one module.
func Artifact(modules ...[]byte) (v1.Image, error) { return NamedArtifact(Title, modules...) }

// NamedArtifact is Artifact with another name.
func NamedArtifact(title string, modules ...[]byte) (v1.Image, error) {
	config := struct {
		Created      string   `json:"created"`
		Architecture string   `json:"architecture"`
		OS           string   `json:"os"`
		LayerDigests []string `json:"layerDigests"`
	}{Created: epoch.Format("2006-01-02T15:04:05Z"), Architecture: "wasm", OS: "wasip1"}
	var layers []v1.Layer
	for _, module := range modules {
		layer := static.NewLayer(module, WasmLayer)
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		config.LayerDigests = append(config.LayerDigests, digest.String())
		layers = append(layers, titled{layer, title})
	}
	data, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return rawImage(WasmConfig, data, layers...)
}

// Busybox makes a linux image of the statically linked busybox of this machine (Debian's package
// busybox-static), every applet a symbolic link in /bin, with passwd and group files.
func Busybox(platform v1.Platform, config v1.Config, more ...File) (v1.Image, error) {
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, fmt.Errorf("read busybox (Debian package busybox-static): %w", err)
	}
	files := []File{
		Dir("bin", 0o755), Dir("etc", 0o755), Dir("root", 0o700), Dir("tmp", 0o1777), Dir("var", 0o755),
		Text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
		Text("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
		Program("bin/busybox", program),
	}
	for _, applet := range []string{
		"cat", "chmod", "cut", "date", "dd", "echo", "env", "false", "grep", "head", "hostname", "httpd", "id", "ip", "kill", "ls",
		"mkdir", "mount", "nc", "ps", "pwd", "rm", "sed", "seq", "sh", "sleep", "stat", "sysctl", "test", "touch", "tr", "true", "uname", "usleep", "wc", "wget", "yes",
	} {
		files = append(files, Symlink("bin/"+applet, "busybox"))
	}
	layer, err := Layer(append(files, more...)...)
	if err != nil {
		return nil, err
	}
	if len(config.Env) == 0 {
		config.Env = []string{"PATH=/bin"}
	}
	if len(config.Entrypoint) == 0 && len(config.Cmd) == 0 {
		config.Cmd = []string{"sh"}
	}
	return Image(platform, config, layer)
}

// raw is an image whose config is not the config of a container.
type raw struct {
	manifest, config []byte
	layers           map[v1.Hash]v1.Layer
}

// rawImage makes an image of a config of any media type and layers as they are.
func rawImage(configType types.MediaType, config []byte, layers ...v1.Layer) (v1.Image, error) {
	hash, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	manifest := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: configType, Digest: hash, Size: size},
	}
	r := raw{config: config, layers: map[v1.Hash]v1.Layer{}}
	for _, layer := range layers {
		descriptor, err := partial.Descriptor(layer)
		if err != nil {
			return nil, err
		}
		manifest.Layers = append(manifest.Layers, *descriptor)
		r.layers[descriptor.Digest] = layer
	}
	if r.manifest, err = json.Marshal(manifest); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(r)
}

func (r raw) RawManifest() ([]byte, error)        { return r.manifest, nil }
func (r raw) RawConfigFile() ([]byte, error)      { return r.config, nil }
func (r raw) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (r raw) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	layer, ok := r.layers[h]
	if !ok {
		return nil, fmt.Errorf("find layer %s: %w", h, io.EOF)
	}
	return layer, nil
}
