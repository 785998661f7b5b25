package scenario

import (
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// pushData stores an image in the registry that holds nothing but data, in one layer or in two.
func pushData(t *testing.T, name string, split bool) string {
	t.Helper()
	first := []oci.File{
		oci.Dir("weights", 0o755), oci.Text("weights/model", "the model\n"),
		{Name: "weights/private", Body: []byte("for user 33\n"), Mode: 0o400, UID: 33, GID: 33},
		oci.Program("weights/run", []byte("#!/bin/sh\necho it runs\n")),
	}
	second := []oci.File{
		oci.Symlink("current", "/weights"), oci.Symlink("outside", "/etc/hostname"), oci.Symlink("out", "../../../../../../etc"),
	}
	var layers []v1.Layer
	if split {
		layers = append(layers, must(oci.Layer(first...)), must(oci.Layer(second...)))
	} else {
		layers = append(layers, must(oci.Layer(append(first, second...)...)))
	}
	ref, err := world.Registry.Push(t.Context(), name, must(oci.Image(oci.Host(), v1.Config{}, layers...)))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// imageMount mounts an image as the kubelet asks for it: by the id that a pull answered.
func imageMount(id, ref, path, sub string) *runtime.Mount {
	return &runtime.Mount{ContainerPath: path, Image: &runtime.ImageSpec{Image: id, UserSpecifiedImage: ref}, ImageSubPath: sub, Readonly: true}
}

// The files of an image are there, read-only and executable, whole or a part; they stay when the
// image and the daemon go.
func TestImageVolumes(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for name, split := range map[string]bool{"data/one:v1": false, "data/two:v1": true} {
		ref := pushData(t, name, split)
		for _, handler := range []string{"runc", "crun"} {
			t.Run(handler+" "+name, func(t *testing.T) { m.in(t).imageVolumes(handler, ref) })
		}
		t.Run("wasm "+name, func(t *testing.T) { m.in(t).imageVolumesOfGuest(ref) })
	}
}

func (m *machine) imageVolumes(handler, ref string) {
	m.t.Helper()
	id := m.pull(ref)
	p := m.run(handler)
	// Without what the shell and touch say of it: the two streams reach the log in no order of
	// their own.
	config := sh(`exec 2>/dev/null; cat /data/weights/model /sub/model /link/model /file; /sub/run; stat -c %u:%g /sub/private
touch /data/new || echo cannot write; /noexec/run || echo cannot run; sleep 1000`)
	noexec := imageMount(id, ref, "/noexec", "weights")
	noexec.MountOptions = []string{"noexec"}
	config.Mounts = []*runtime.Mount{
		imageMount(id, ref, "/data", ""), imageMount(id, ref, "/sub", "weights"), imageMount(ref, ref, "/link", "current"),
		imageMount(id, ref, "/file", "weights/model"), noexec,
	}
	c := p.create(config)
	if _, err := m.RemoveImage(m.t.Context(), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: id}}); err != nil {
		m.t.Fatal(err)
	}
	m.Restart()
	c.start()
	c.says("the model\nthe model\nthe model\nthe model\nit runs\n33:33\n")
	c.says("cannot write")
	c.says("cannot run")
	if out, err := m.ExecSync(m.t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"cat", "/data/weights/model"}}); err != nil || string(out.GetStdout()) != "the model\n" {
		m.t.Errorf("after the image went: %v, %v", out, err)
	}
	m.expectSound("with image volumes")
	mounts := c.status().GetMounts()
	if len(mounts) != len(config.Mounts) {
		m.t.Fatalf("mounts in the status: %v", mounts)
	}
	for i, got := range mounts {
		image := got.GetImage()
		if image.GetImage() != id || image.GetUserSpecifiedImage() != ref || !strings.Contains(image.GetImageRef(), "@sha256:") ||
			got.GetHostPath() != "" || got.GetImageSubPath() != config.Mounts[i].GetImageSubPath() || !got.GetReadonly() {
			m.t.Errorf("mount %d in the status: %v", i, got)
		}
	}
	c.stop(0)
	p.remove()
	m.noViews()
}

// A shim that dies takes what it has mounted along.
func TestImageVolumesOfADeadShim(t *testing.T) {
	m := startOwn(t)
	m.pull(world.Busybox)
	ref := pushData(t, "data/dead:v1", true)
	id := m.pull(ref)
	for _, handler := range everyHandler {
		p := m.run(handler)
		config := sh("cat /data/weights/model; sleep 1000")
		config.Mounts = []*runtime.Mount{imageMount(id, ref, "/data", "")}
		p.begin(config).says("the model")
		p.killShim()
		if !node.Within(node.Patience, func() bool {
			return p.status().GetStatus().GetState() == runtime.PodSandboxState_SANDBOX_NOTREADY
		}) {
			t.Error("the pod is still ready")
		}
		if !node.Within(node.Patience, func() bool {
			left, err := filepath.Glob(filepath.Join(m.State, "sandboxes/*/*/images/*"))
			return err == nil && len(left) == 0
		}) {
			t.Errorf("%s: the image is still shown", handler)
		}
		p.remove()
	}
	m.noViews()
}

// noViews fails when something of an image volume is still mounted or kept.
func (m *machine) noViews() {
	m.t.Helper()
	left, err := filepath.Glob(filepath.Join(m.State, "sandboxes/*/*/images/*"))
	if err != nil || len(left) > 0 {
		m.t.Errorf("image volumes are left: %v, %v", left, err)
	}
}

func (m *machine) imageVolumesOfGuest(ref string) {
	m.t.Helper()
	id := m.pull(ref)
	p := m.run("wasm")
	for path, want := range map[string]string{"/data/weights/model": "the model\n", "/sub/model": "the model\n", "/data/current/model": ""} {
		config := containerConfig(world.Guest, "cat", path)
		config.Mounts = []*runtime.Mount{imageMount(id, ref, "/data", ""), imageMount(id, ref, "/sub", "current")}
		c := p.begin(config)
		status := c.wait()
		if got := c.text(); want != "" && got != want || want == "" && status.GetExitCode() == 0 {
			m.t.Errorf("%s: %d %q, want %q", path, status.GetExitCode(), got, want)
		}
	}
	p.remove()
	m.noViews()
}

// What cannot be mounted is refused with the word that clients know and what is wrong; nothing is
// left of it.
func TestImageVolumesThatAreRefused(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	artifact := m.pull(world.Artifact)
	ref := pushData(t, "data/refused:v1", true)
	id := m.pull(ref)
	writable, propagated := imageMount(id, ref, "/v", ""), imageMount(id, ref, "/v", "")
	writable.Readonly = false
	propagated.Propagation = runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	both := imageMount(id, ref, "/v", "")
	both.HostPath = "/tmp"
	p := m.run("runc")
	for _, tt := range []struct {
		name  string
		mount *runtime.Mount
		code  codes.Code
		says  []string
	}{
		{"absent", imageMount("registry.example/none:1", "", "/v", ""), codes.NotFound, []string{"mounts[0].image: ImageVolumeMountFailed: ", "registry.example/none:1", "pull it first"}},
		{"no such sub-path", imageMount(id, ref, "/v", "weights/none"), codes.NotFound, []string{"ImageVolumeMountFailed: ", `sub-path "weights/none" is not in the image`}},
		{"link to nowhere", imageMount(id, ref, "/v", "outside"), codes.NotFound, []string{"ImageVolumeMountFailed: ", "outside"}},
		{"up", imageMount(id, ref, "/v", "../weights"), codes.InvalidArgument, []string{"mounts[0].image_sub_path"}},
		{"module", imageMount(artifact, "", "/v", ""), codes.InvalidArgument, []string{"ImageVolumeMountFailed: ", "WebAssembly module"}},
		{"writable", writable, codes.InvalidArgument, []string{"mounts[0].readonly"}},
		{"propagated", propagated, codes.InvalidArgument, []string{"mounts[0].propagation"}},
		{"host path too", both, codes.InvalidArgument, []string{"mounts[0].host_path"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := sh("true")
			config.Mounts = []*runtime.Mount{tt.mount}
			_, err := p.tryCreate(config)
			if grpcstatus.Code(err) != tt.code {
				t.Errorf("%v, want %s", err, tt.code)
			}
			for _, says := range tt.says {
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
		})
	}
	m.noViews()
}
