package hostile

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// damages are what may happen to a file of records; nil is its loss.
func damages() map[string]func([]byte) []byte {
	random := rand.New(rand.NewPCG(3, 4))
	return map[string]func([]byte) []byte{
		"lost":    nil,
		"cut":     func(data []byte) []byte { return data[:len(data)/3] },
		"zeroed":  func(data []byte) []byte { return make([]byte, len(data)) },
		"another": func([]byte) []byte { return bytes.Repeat([]byte("no database\n"), 5000) },
		"random": func(data []byte) []byte {
			body := data[min(len(data)/2, 2*4096):]
			for i := range body {
				body[i] = byte(random.Uint32())
			}
			return data
		},
		"flipped": func(data []byte) []byte {
			for i := range data {
				data[i] = ^data[i]
			}
			return data
		},
	}
}

// damage kills the server, damages what patterns match in its folder of images, and starts it
// again.
func (n *target) damage(damage func([]byte) []byte, patterns ...string) {
	n.t.Helper()
	n.check(n.SignalDaemon(syscall.SIGKILL))
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(n.Root, "images", pattern))
		n.check(err)
		if len(paths) == 0 {
			n.t.Fatalf("there is no %s", pattern)
		}
		for _, path := range paths {
			if damage == nil {
				n.check(os.Remove(path))
				continue
			}
			data, err := os.ReadFile(path)
			n.check(err)
			n.check(os.WriteFile(path, damage(data), 0o600))
		}
	}
	n.check(n.StartDaemon(n.t.Context()))
}

// present says whether the server knows an image.
func (n *target) present(ref string) bool {
	n.t.Helper()
	status, err := n.ImageStatus(n.t.Context(), &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: ref}})
	n.check(err)
	return status.GetImage() != nil
}

// runs reports whether a container of pullOnce's image runs, and can read a file that it has not
// opened before.
func (c *container) runs(file string) bool {
	c.t.Helper()
	answer, err := c.ContainerStatus(c.t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id})
	c.check(err)
	ran, err := c.ExecSync(c.within(node.Patience), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"/bin/cat", "/data/" + file}})
	if err != nil {
		c.t.Error(err)
	}
	return answer.GetStatus().GetState() == runtime.ContainerState_CONTAINER_RUNNING && ran.GetExitCode() == 0 && string(ran.GetStdout()) == file
}

// A server whose records of images, layers or roots of containers are damaged puts them aside, says
// so, starts, and continues: pods run on. Images are restored without their registry, unless what
// they consist of is damaged as well: then they are pulled again.
func TestDamagedRecords(t *testing.T) {
	n := start(t)
	const database, folder = "file is damaged, put aside", "failed to use folder"
	for _, files := range []struct {
		damaged []string
		says    string
		present bool // the image is known
	}{
		{[]string{"records.db"}, database, true},
		{[]string{"records.db", "records.db.copy"}, database, false},
		{[]string{"layers/snapshots/?????????*/record"}, folder, true}, // of roots, whose names are long
		{[]string{"layers/snapshots/?????????*/record", "records.db"}, folder, true},
		{[]string{"layers/snapshots/*/record"}, folder, false},
	} {
		file := strings.Join(files.damaged, " and ")
		for name, damage := range damages() {
			ref := n.pullOnce()
			p := n.run("runc")
			command := []string{"/bin/sh", "-c", "sleep 1000"}
			before := p.start(of(ref, command...))
			unborn, err := p.tryCreate(of(ref, command...))
			n.check(err)
			n.damage(damage, files.damaged...)
			if says := damage != nil || files.says == folder; says && !strings.Contains(n.DaemonLog(), files.says) {
				t.Errorf("%s %s: log lacks %q:\n%s", file, name, files.says, n.DaemonLog())
			}
			if !before.runs("one") {
				t.Errorf("%s %s: the container does not run", file, name)
			}
			if n.present(ref) != files.present {
				t.Errorf("%s %s: the image is there: %v, log\n%s", file, name, !files.present, n.DaemonLog())
			}
			if !files.present {
				ref = n.pullOnce()
			}
			after := p.start(of(ref, "/bin/sh", "-c", "exit 7"))
			if code := after.wait().GetExitCode(); code != 7 {
				t.Errorf("%s %s: exit code %d", file, name, code)
			}
			_, err = n.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: after.id})
			n.check(err)
			// Now no record may say that a container needs the layers.
			_, err = n.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: ref}})
			n.check(err)
			if !before.runs("two") {
				t.Errorf("%s %s: the container does not run without its image", file, name)
			}
			for _, c := range []*container{before, unborn} {
				_, err = n.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: c.id})
				n.check(err)
			}
			p.stop()
			p.remove()
			left, err := filepath.Glob(filepath.Join(n.Root, "images/layers/snapshots/*"))
			if err != nil || len(left) > 0 {
				t.Errorf("%s %s: left: %q, %v", file, name, left, err)
			}
		}
	}
}

// pullOnce pulls an image from a registry that is there only meanwhile.
func (n *target) pullOnce() (ref string) {
	n.t.Helper()
	registry, err := oci.Serve("127.0.0.1:0")
	n.check(err)
	defer registry.Close()
	busybox, err := oci.Busybox(oci.Host(), v1.Config{}, oci.Dir("data", 0o755), oci.Text("data/one", "one"), oci.Text("data/two", "two"))
	n.check(err)
	ref, err = registry.Push(n.t.Context(), "busybox:1", busybox)
	n.check(err)
	n.pull(ref)
	return ref
}
