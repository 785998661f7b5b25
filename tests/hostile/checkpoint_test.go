package hostile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// An image whose annotation says that it was made of a checkpoint makes no container unless that is
// configured; then it is read with bounds, whatever it holds.
func TestCheckpointImage(t *testing.T) {
	criu := filepath.Join(t.TempDir(), "criu")
	if err := os.WriteFile(criu, []byte("#!/bin/sh\n[ \"$1\" = check ]\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(criu)+":"+os.Getenv("PATH"))
	layer, err := oci.Layer(
		oci.File{Name: "config.dump", Body: make([]byte, 300<<20), Mode: 0o600}, oci.Text("spec.dump", "{}"),
		oci.Dir("checkpoint", 0o700), oci.Text("checkpoint/inventory.img", "none"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := oci.Image(oci.Host(), v1.Config{Cmd: []string{"x"}}, layer)
	if err != nil {
		t.Fatal(err)
	}
	image = oci.Annotated(image, map[string]string{"io.kubernetes.cri-o.annotations.checkpoint.name": "main"})
	for _, tt := range []struct {
		config string
		code   codes.Code
		says   string
	}{
		{"", codes.FailedPrecondition, "images.restore_checkpoints"},
		{"[images]\nrestore_checkpoints = true", codes.InvalidArgument, "config.dump"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			n := start(t, tt.config)
			ref := n.push("checkpoint:bomb", image, nil)
			n.pull(ref)
			p := n.run("runc")
			_, err := p.tryCreate(of(ref))
			n.refused(err, tt.code, tt.says)
			if most := n.mostMemory(); most > 250<<20 {
				t.Errorf("the daemon took %d MiB", most>>20)
			}
			left, err := os.ReadDir(filepath.Join(n.Root, "checkpoints"))
			if err != nil || len(left) > 0 {
				t.Errorf("left of the checkpoint: %v, %v", left, err)
			}
		})
	}
}

// An archive that is none holds nothing up.
func TestCheckpointArchiveThatIsNone(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	pipe, endless, _ := odd(t)
	p := n.run("runc")
	for _, file := range []string{pipe, endless} {
		config := sh("true")
		config.Image = &runtime.ImageSpec{Image: file}
		if _, err := p.tryCreate(config); err == nil || strings.Contains(err.Error(), "DeadlineExceeded") {
			t.Errorf("%s: %v", file, err)
		}
	}
	p.start(sh("true")).wait()
	p.stop()
	p.remove()
}

// mostMemory is the most that the daemon ever had of its own, in bytes.
func (n *target) mostMemory() int64 {
	n.t.Helper()
	most, err := measure.PeakMemory(n.DaemonPID())
	n.check(err)
	return most
}
