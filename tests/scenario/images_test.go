package scenario

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (m *machine) imageStatus(image string) *runtime.Image {
	m.t.Helper()
	answer, err := m.ImageStatus(m.t.Context(), &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: image}})
	if err != nil {
		m.t.Fatalf("status of image %s: %v", image, err)
	}
	return answer.GetImage()
}

// A pull without a handler fetches what every handler will want, because later there are no
// credentials and maybe no registry.
func TestPullWithoutHandlerServesEveryHandler(t *testing.T) {
	m := start(t)
	id := m.PullAndCompile(world.Batch, "")
	if image := m.imageStatus(world.Batch); image.GetId() != id {
		t.Errorf("the pull answered %s, the status says %s", id, image.GetId())
	}
	world.Registry.ForgetRequests()
	for _, handler := range everyHandler {
		p := m.run(handler)
		p.begin(containerConfig(world.Batch)).expectEnd(0, "Completed")
	}
	if requests := world.Registry.Requests(); len(requests) != 0 {
		t.Errorf("the registry was asked again: %q", requests)
	}
}

// The kubelet's pull policy Always pulls for each start; what is there is not fetched again.
func TestSecondPullFetchesNothing(t *testing.T) {
	m := start(t)
	first := m.pull(world.Batch)
	world.Registry.ForgetRequests()
	if second := m.pull(world.Batch); second != first {
		t.Errorf("two pulls answered %s and %s", first, second)
	}
	if n := world.Registry.Blobs(); n != 0 {
		t.Errorf("the second pull fetched %d blobs: %q", n, world.Registry.Requests())
	}
}

// The kubelet asks with the id that the pull answered, which may be a sibling variant's.
func TestContainerByImageID(t *testing.T) {
	m := start(t)
	id := m.pull(world.Batch)
	for _, handler := range []string{"runc", "wasm"} {
		p := m.run(handler)
		config := containerConfig(id)
		config.Image.UserSpecifiedImage = world.Batch
		c := p.begin(config)
		c.expectEnd(0, "Completed")
		if want := "running as " + platformOf(handler); !strings.Contains(c.text(), want) {
			t.Errorf("under %s: %q, want %q", handler, c.text(), want)
		}
	}
}

// Every shape of a WebAssembly image runs under the wasm handler.
func TestWasmImageShapes(t *testing.T) {
	m := start(t)
	for _, image := range []string{world.Guest, world.Artifact, world.AsLinux} {
		t.Run(image[strings.LastIndexByte(image, ':')+1:], func(t *testing.T) {
			m := m.in(t)
			m.pull(image)
			c := m.run("wasm").begin(containerConfig(image, "exit", "7"))
			c.expectEnd(7, "Error")
		})
	}
}

// Two modules, or a component that is no command, are refused with a text that says why.
func TestWasmImagesThatAreRefused(t *testing.T) {
	m := start(t)
	for image, want := range map[string]string{world.TwoLayers: "layer", world.NoCommand: "exports neither wasi:cli/run"} {
		_, err := m.PullImage(t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: image}})
		if err == nil {
			p := m.run("wasm")
			_, err = p.tryCreate(containerConfig(image))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", image, err, want)
		}
	}
}

// Under an OCI handler a WebAssembly image is refused, and the text says which handler to use.
func TestWasmImageUnderRunc(t *testing.T) {
	m := start(t)
	p := m.run("runc")
	for _, image := range []string{world.Guest, world.Artifact, world.AsLinux} {
		_, err := m.PullImage(t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: image}})
		var c *container
		if err == nil {
			c, err = p.tryCreate(containerConfig(image, "exit", "0"))
		}
		if err == nil {
			_, err = m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: c.id})
		}
		if err == nil || !strings.Contains(err.Error(), "wasm") {
			t.Errorf("%s: %v, want an error that names the handler wasm", image, err)
		}
	}
}

func TestRemoveImage(t *testing.T) {
	m := start(t)
	m.PullAndCompile(world.Batch, "")
	for range 2 { // removing is idempotent
		if _, err := m.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: world.Batch}}); err != nil {
			t.Fatal(err)
		}
	}
	if image := m.imageStatus(world.Batch); image != nil {
		t.Errorf("the image is still there: %v", image)
	}
	list, err := m.ListImages(t.Context(), &runtime.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list.GetImages()); n != 0 {
		t.Errorf("%d images are still listed: %v", n, list.GetImages())
	}
}

func TestPullErrors(t *testing.T) {
	m := start(t)
	for _, c := range []struct {
		image, handler string
		code           codes.Code
		text           string
	}{
		{"A:-x", "", codes.InvalidArgument, "A:-x"},
		{"", "", codes.InvalidArgument, ""},
		{world.Registry.Host + "/nothing:here", "", codes.NotFound, "nothing"},
		{world.Batch, "nope", codes.InvalidArgument, "runc"},
		{"127.0.0.1:1/unreachable:1", "", codes.Unknown, "RegistryUnavailable: "},
	} {
		_, err := m.PullImage(t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: c.image, RuntimeHandler: c.handler}})
		if got := grpcstatus.Code(err); got != c.code || !strings.Contains(grpcstatus.Convert(err).Message(), c.text) {
			t.Errorf("pull %q for %q: %v, want code %v and %q in it", c.image, c.handler, err, c.code, c.text)
		}
	}
}

func TestImageFsInfo(t *testing.T) {
	m := start(t)
	used := func() uint64 {
		info, err := m.ImageFsInfo(t.Context(), &runtime.ImageFsInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(info.GetImageFilesystems()) == 0 {
			t.Fatal("no image file system")
		}
		fs := info.GetImageFilesystems()[0]
		if fs.GetTimestamp() == 0 || fs.GetFsId().GetMountpoint() == "" {
			t.Errorf("incomplete: %v", fs)
		}
		return fs.GetUsedBytes().GetValue()
	}
	before := used()
	m.pull(world.Busybox)
	if after := used(); after <= before {
		t.Errorf("%d bytes used before a pull and %d after it", before, after)
	}
}
