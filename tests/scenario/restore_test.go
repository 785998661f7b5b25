package scenario

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/checkpoint"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// saved is a checkpoint of a container in all but the state of its processes, which only CRIU could
// write.
func (c *container) saved() (dir string) {
	c.t.Helper()
	dir = c.t.TempDir()
	spec, err := os.ReadFile(filepath.Join(c.State, "sandboxes", c.pod.id, c.id, "config.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, checkpoint.RootFile))
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	changes := c.t.TempDir()
	err = errors.Join(
		os.Mkdir(filepath.Join(dir, checkpoint.StateDir), 0o700),
		os.WriteFile(filepath.Join(dir, checkpoint.StateDir, "inventory.img"), []byte("no state"), 0o600),
		os.WriteFile(filepath.Join(dir, checkpoint.SpecFile), spec, 0o600),
		os.WriteFile(filepath.Join(changes, "was-written"), []byte("before the checkpoint"), 0o600),
		second(checkpoint.Layers{Upper: changes}.WriteRoot(c.t.Context(), f)),
		checkpoint.WriteJSON(filepath.Join(dir, checkpoint.ConfigFile), checkpoint.Config{
			ID: c.id, Name: c.config.GetMetadata().GetName(),
			RootfsImage: world.Busybox, RootfsImageName: world.Busybox, RootfsImageRef: c.status().GetImageRef(),
		}),
	)
	if err != nil {
		c.t.Fatal(err)
	}
	return dir
}

// pushCheckpoint stores an image that was made of a checkpoint, as the tools do.
func pushCheckpoint(t *testing.T, path, dir string) string {
	t.Helper()
	var files []oci.File
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		name, rerr := filepath.Rel(dir, file)
		if err = errors.Join(err, rerr); err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			files = append(files, oci.Dir(name, 0o700))
			return nil
		}
		data, err := os.ReadFile(file)
		files = append(files, oci.File{Name: name, Body: data, Mode: 0o600})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	layer, err := oci.Layer(files...)
	if err != nil {
		t.Fatal(err)
	}
	image, err := oci.Image(oci.Host(), v1.Config{}, layer)
	if err != nil {
		t.Fatal(err)
	}
	image = oci.Annotated(image, map[string]string{"io.kubernetes.cri-o.annotations.checkpoint.name": "main"})
	ref, err := world.Registry.Push(t.Context(), path, image)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// What becomes of a checkpoint before CRIU itself is asked to restore it needs none that works:
// where the container's image is found, what it had written, what is refused, and what is left.
func TestRestoreUntilTheStart(t *testing.T) {
	fakeCRIU(t, "[ \"$1\" = check ]\n")
	m := start(t, "[images]\nrestore_checkpoints = true")
	base := m.pull(world.Busybox)
	p := m.run("runc")
	dir := p.begin(sh("sleep 1000")).saved()
	archive := filepath.Join(t.TempDir(), "main.tar")
	if err := checkpoint.Pack(t.Context(), dir, archive); err != nil {
		t.Fatal(err)
	}
	image := pushCheckpoint(t, "checkpoint:main", dir)
	id := m.pull(image)
	from := func(ref string) *runtime.ContainerConfig {
		config := sh("exit 7") // the program is the checkpoint's
		config.Image = &runtime.ImageSpec{Image: ref, UserSpecifiedImage: image}
		return config
	}
	for _, ref := range []string{archive, image, id} {
		c := p.create(from(ref))
		if st := c.status(); st.GetState() != runtime.ContainerState_CONTAINER_CREATED || st.GetImageId() != base || st.GetImage().GetImage() != world.Busybox {
			t.Errorf("from %s: %v", ref, st)
		}
		if !m.hasLayerFile("was-written") {
			t.Errorf("from %s: what the container had written is not there", ref)
		}
		_, err := m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: c.id})
		if err == nil || !strings.Contains(err.Error(), "criu") {
			t.Errorf("start from %s: %v", ref, err)
		}
		c.expectEnd(128, "StartError")
		if _, err := m.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: c.id}); err != nil {
			t.Error(err)
		}
	}

	// A pod that names the checkpoint does not know of the image below it.
	if _, err := m.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: world.Busybox}}); err != nil {
		t.Fatal(err)
	}
	if st := p.create(from(id)).status(); st.GetImageId() != base {
		t.Errorf("with the image below it fetched: %v", st)
	}

	if err := os.Remove(filepath.Join(dir, checkpoint.StateDir, "inventory.img")); err != nil {
		t.Fatal(err)
	}
	broken := pushCheckpoint(t, "checkpoint:broken", dir)
	m.pull(broken)
	guests := m.run("wasm")
	for what, c := range map[string]struct {
		pod  *pod
		ref  string
		code codes.Code
		text string
	}{
		"image without state": {p, broken, codes.InvalidArgument, "inventory.img"},
		"image for guests":    {guests, image, codes.FailedPrecondition, "WebAssembly"},
		"archive for guests":  {guests, archive, codes.FailedPrecondition, "WebAssembly"},
		"no archive":          {p, dir, codes.InvalidArgument, "not the archive"},
	} {
		if _, err := c.pod.tryCreate(from(c.ref)); grpcstatus.Code(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", what, err, c.code, c.text)
		}
	}
	m.noCheckpoints()
}

// hasLayerFile says whether a file of this name is in a layer that is written to.
func (m *machine) hasLayerFile(name string) bool {
	m.t.Helper()
	found := false
	err := filepath.WalkDir(filepath.Join(m.Root, "images"), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		found = found || err == nil && entry.Name() == name
		return err
	})
	if err != nil {
		m.t.Error(err)
	}
	return found
}

// noCheckpoints fails when something is left that a checkpoint was laid out in.
func (m *machine) noCheckpoints() {
	m.t.Helper()
	if entries, err := os.ReadDir(filepath.Join(m.Root, "checkpoints")); err != nil || len(entries) != 0 {
		m.t.Errorf("left in the folder of checkpoints: %v, %v", entries, err)
	}
	m.expectSound("after restores")
}

// A pod that is restored is nobody else's meanwhile, and a request that repeats it gets the same
// pod.
func TestRestorePodHasItsName(t *testing.T) {
	// While there is a file, the second question waits: that for the pod's container.
	hold := filepath.Join(t.TempDir(), "hold")
	fakeCRIU(t, "[ \"$1\" = check ] || exit 1\n[ -e "+hold+" ] || exit 0\nmkdir "+hold+".first 2>/dev/null && exit 0\n"+
		"touch "+hold+".second\nwhile [ -e "+hold+" ]; do sleep 0.02; done\n")
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	config := sh("sleep 1000")
	c := p.begin(config)
	folder := t.TempDir()
	err := errors.Join(
		checkpoint.Pack(t.Context(), c.saved(), filepath.Join(folder, "x.tar")),
		checkpoint.WriteJSON(filepath.Join(folder, checkpoint.PodOptionsFile),
			checkpoint.PodOptions{Version: 1, Containers: map[string]string{config.GetMetadata().GetName(): "x"}}),
		os.WriteFile(hold, nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	p.remove()
	again := m.podConfig("pod")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type answer struct {
		*runtime.RestorePodResponse
		err error
	}
	answers := make(chan answer, 2)
	restore := func() {
		a, err := m.RestorePod(ctx, &runtime.RestorePodRequest{CheckpointPath: folder, Config: again, ContainerConfigs: []*runtime.ContainerConfig{config}})
		answers <- answer{a, err}
	}
	go restore()
	if !node.Within(node.Patience, func() bool { _, err := os.Stat(hold + ".second"); return err == nil }) {
		t.Fatal("no container is being restored")
	}
	if _, err := m.RunPodSandbox(t.Context(), &runtime.RunPodSandboxRequest{Config: again}); grpcstatus.Code(err) != codes.AlreadyExists {
		t.Errorf("run the same pod meanwhile: %v", err)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	got := <-answers
	if got.err != nil || len(got.GetRestoredContainers()) != 1 {
		t.Fatalf("restore: %v, %v", got, got.err)
	}
	restored := &pod{machine: m, id: got.GetPodSandboxId(), handler: "runc", config: again}
	m.Ran(restored.id)
	id := got.GetRestoredContainers()[0].GetContainerId()
	if st := (&container{pod: restored, id: id}).status(); st.GetState() != runtime.ContainerState_CONTAINER_CREATED {
		t.Errorf("the restored container is %v", st)
	}
	if restore(); grpcstatus.Code((<-answers).err) != codes.AlreadyExists {
		t.Error("a pod that is there was restored once more")
	}
	restored.remove()

	// A server that dies in between leaves nothing of it.
	if err := errors.Join(os.Remove(hold+".first"), os.Remove(hold+".second"), os.WriteFile(hold, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	go restore()
	if !node.Within(node.Patience, func() bool { _, err := os.Stat(hold + ".second"); return err == nil }) {
		t.Fatal("no container is being restored")
	}
	list, err := m.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{})
	if err != nil || len(list.GetItems()) != 1 {
		t.Fatalf("pods meanwhile: %v, %v", list, err)
	}
	m.Ran(list.GetItems()[0].GetId())
	if err := os.Remove(hold); err != nil { // the fake criu outlives its server, and is not to wait for ever
		t.Fatal(err)
	}
	m.Restart()
	<-answers
	list, err = m.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// It may have been through before it died.
	if slices.ContainsFunc(list.GetItems(), func(i *runtime.PodSandbox) bool { return i.GetState() != runtime.PodSandboxState_SANDBOX_READY }) {
		t.Errorf("pods after the restart: %v", list.GetItems())
	}
	m.noCheckpoints()
}
