// Package pods kills the daemon in the middle of the lives of pods that it runs from manifests, and
// looks at what becomes of them.
//
// # Points
//
// A point is one kill -9. A life of two pods, one of containers and one of a guest, has four
// stages: their start, crashes of a container, an edit and their end. In each stage the daemon is
// killed just before the Nth system call that others can see of those that it makes in this stage
// (tests/killer), or during a hook, and in one of them the daemon that is started after it is killed
// again while it starts: five points. N comes from the seed and from how many steps the stage was seen to take in
// a life without a kill. Whatever the point, what holds of a pod whose server never died must hold:
// there is one sandbox of a pod and one running container of a name, a container runs once for each
// count, counts never fall, no restart comes before its back-off is over, logs are numbered and
// never written over, files of volumes are there for as long as anything runs, hooks run, and when
// the manifests are removed nothing is left.
//
// TestKillApplied does the same with pods that commands apply, resize and delete. The commands are
// stages of their own.
//
//	go test -v ./tests/recovery/pods -seed 7 -most 0 -only 3
//
// Each worker has a daemon of its own, in a network namespace of its own.
package pods

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// allPoints is how many there are, perLife how many are in one life.
const allPoints, perLife = 40, 5

var (
	seed = flag.Uint64("seed", 1, "where the points lie")
	most = flag.Int("most", 10, "at most so many points; 0 for all")
	work = flag.Int("workers", 4, "daemons that are at it side by side: what waits gives way to others")
	only = flag.Int("only", 0, "only this life, from 1 on; 0 for all")
)

func TestMain(m *testing.M) {
	killer.Serve()
	flag.Parse()
	os.Exit(node.Ground{Name: "podrecovery", Inside: oci.WithRegistry(&world.registry, prepare, m.Run)}.Enter())
}

// world is what all workers share: nothing in it changes after TestMain.
var world struct {
	folder, bin   string
	registry      *oci.Registry
	first, second string // busybox, with different bytes
	guest         string
}

func prepare(folder string) error {
	world.folder, world.bin = folder, filepath.Join(folder, "bin")
	ctx := context.Background()
	for ref, name := range map[*string]string{&world.first: "first", &world.second: "second"} {
		image, err := oci.Busybox(oci.Host(), v1.Config{}, oci.Text("name", name))
		if err != nil {
			return err
		}
		if *ref, err = world.registry.Push(ctx, "pods/busybox:"+name, image); err != nil {
			return err
		}
	}
	image, err := oci.PackedC(ctx, "../../criwasm/testdata/guest.c", oci.Dir("tmp", 0o1777))
	if err != nil {
		return err
	}
	world.guest, err = world.registry.Push(ctx, "pods/guest:1", image)
	return err
}
