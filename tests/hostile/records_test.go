package hostile

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A server whose records of images or layers are damaged puts them aside, says so, starts, and continues: pods run on. The
// records of images come back from their copy; without it, and without the records of layers, images are pulled again.
func TestDamagedRecords(t *testing.T) {
	n := start(t)
	random := rand.New(rand.NewPCG(3, 4))
	damages := map[string]func([]byte) []byte{
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
	for _, files := range [][]string{{"records.db"}, {"records.db", "records.db.copy"}, {"layers/metadata.db"}} {
		file := strings.Join(files, " and ")
		for name, damage := range damages {
			n.pull(world.busybox)
			p := n.run("runc")
			before, idle := p.start(sh("sleep 1000")), sh("sleep 1000")
			unborn, err := p.tryCreate(idle)
			n.check(err)
			n.check(n.SignalDaemon(syscall.SIGKILL))
			for _, f := range files {
				path := filepath.Join(n.Root, "images", f)
				data, err := os.ReadFile(path)
				n.check(err)
				n.check(os.WriteFile(path, damage(data), 0o600))
			}
			path := filepath.Join(n.Root, "images", files[0])
			if err := n.StartDaemon(t.Context()); err != nil {
				t.Fatalf("%s %s: %v", file, name, err)
			}
			if aside, err := filepath.Glob(path + ".damaged-*"); err != nil || len(aside) == 0 || !strings.Contains(n.DaemonLog(), "file is damaged, put aside") {
				t.Errorf("%s %s: %v, put aside: %q", file, name, err, aside)
			}
			answer, err := n.ContainerStatus(t.Context(), &runtime.ContainerStatusRequest{ContainerId: before.id})
			n.check(err)
			if answer.GetStatus().GetState() != runtime.ContainerState_CONTAINER_RUNNING {
				t.Errorf("%s %s: container %v", file, name, answer.GetStatus())
			}
			status, err := n.ImageStatus(t.Context(), &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: world.busybox}})
			n.check(err)
			if restored := file == "records.db"; restored != (status.GetImage() != nil) {
				t.Errorf("%s %s: the image is there: %v, want %v", file, name, !restored, restored)
			} else if !restored {
				n.pull(world.busybox)
			}
			if code := p.start(sh("exit 7")).wait().GetExitCode(); code != 7 {
				t.Errorf("%s %s: exit code %d", file, name, code)
			}
			for _, c := range []*container{before, unborn} {
				_, err = n.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: c.id})
				n.check(err)
			}
			p.stop()
			p.remove()
		}
	}
}
