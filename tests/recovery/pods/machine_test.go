package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/tests/node"
)

// machine is a worker's node, which runs pods from manifests.
type machine struct {
	*node.Watched
	ctx      context.Context
	client   *api.Client
	resource api.Resource // pods
}

func (m *machine) podLogs() string { return filepath.Join(m.Options.Dir, "pod-logs") }

// alone calls use with a node in a network and a mount namespace of its own, and takes the node
// away.
func alone(t *testing.T, config string, use func(m *machine)) {
	err := node.Apart(func() {
		m, err := begin(t, config)
		if err != nil {
			t.Error(err)
			return
		}
		use(m)
		if err := errors.Join(m.client.Close(), m.Finish()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func begin(t *testing.T, config string) (*machine, error) {
	if err := world.registry.Join(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(world.folder, "node-")
	if err != nil {
		return nil, err
	}
	return beginIn(t, dir, config)
}

// beginIn starts a node whose folder is dir.
func beginIn(t *testing.T, dir, config string) (*machine, error) {
	manifests, logs := filepath.Join(dir, "manifests"), filepath.Join(dir, "pod-logs")
	if err := errors.Join(os.Mkdir(manifests, 0o755), os.Mkdir(logs, 0o755)); err != nil {
		return nil, err
	}
	watched, err := node.StartWatched(t.Context(), node.Options{
		Bin: world.bin, Dir: dir, Config: fmt.Sprintf(config, node.Driver(), filepath.Join(dir, "cni"), manifests, logs),
	})
	if err != nil {
		return nil, err
	}
	m := &machine{Watched: watched, ctx: t.Context()}
	m.resource, _ = api.FindResource("pods")
	if m.client, err = m.PodClient(m.ctx); err != nil {
		return nil, errors.Join(err, m.Finish())
	}
	for _, ref := range []string{world.first, world.second, world.guest} {
		if _, err := m.PullImage(m.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}}); err != nil {
			return nil, errors.Join(err, m.client.Close(), m.Finish())
		}
	}
	return m, nil
}

// The daemon is killed in all stages of the life of the pods that it runs from manifests.
func TestKillPods(t *testing.T) { lives(t, allPoints/perLife, perLife, (*machine).live) }

// lives goes through so many lives with so many points each.
func lives(t *testing.T, count, points int, live func(m *machine, t *testing.T, nth int, steps map[string]int) bool) {
	if *most > 0 {
		count = min(count, max(*most/points, 1))
	}
	todo := make(chan int, count)
	for nth := 1; nth <= count; nth++ {
		if *only == 0 || *only == nth {
			todo <- nth
		}
	}
	close(todo)
	steps, measured := map[string]int{}, false
	alone(t, config, func(m *machine) { measured = live(m, t, 0, steps) })
	if !measured {
		return
	}
	var ran, clean atomic.Int32
	var all sync.WaitGroup
	for i := range min(*work, len(todo)) {
		kind := config
		if i%2 == 1 {
			kind = node.OwnShims(config) // each pod has a shim of its own
		}
		all.Go(func() {
			alone(t, kind, func(m *machine) {
				for nth := range todo {
					ran.Add(1)
					if !live(m, t, nth, steps) {
						return // what is left would be found again
					}
					clean.Add(1)
				}
			})
		})
	}
	all.Wait()
	fmt.Printf("seed %d: %d lives with %d points each, %d clean\n", *seed, ran.Load(), points, clean.Load())
}
