package retain

import (
	"context"
	"maps"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// StrayAge is how long the compiled code of a module that came with no image is kept after its last
// use: of modules that containers name instead of their image's command, that are run by exec or by
// hand.
const StrayAge = 24 * time.Hour

// programs returns the modules that images and containers run.
func programs(st *store.State, roots []unpack.Root) map[digest.Digest]bool {
	all := make(map[digest.Digest]bool)
	for _, img := range st.Images {
		for _, d := range img.Modules() {
			all[d] = true
		}
	}
	for _, r := range roots {
		all[digest.Digest(r.Labels[LabelModule])] = true
		all[digest.Digest(r.Labels[LabelProgram])] = true
	}
	return all
}

// departUnneeded tells Options.Departed about the modules that no image, no container and no pull
// needs. What is not done, because of an error or because this process ends, is on record and done
// by the next sweep.
func (c *Collector) departUnneeded(ctx context.Context) error {
	if c.modules.Departed == nil || len(c.disk.DB.State().Prepared) == 0 {
		return nil
	}
	return c.forget(ctx, func(programs map[digest.Digest]bool) ([]digest.Digest, error) {
		var deleted []digest.Digest
		for d := range maps.Keys(c.disk.DB.State().Prepared) {
			if !programs[digest.Digest(d)] {
				deleted = append(deleted, digest.Digest(d))
			}
		}
		return deleted, nil
	})
}

// dropStray does so about what is kept of modules that no image has brought.
func (c *Collector) dropStray(ctx context.Context) error {
	if c.modules.Departed == nil {
		return nil
	}
	return c.forget(ctx, func(programs map[digest.Digest]bool) ([]digest.Digest, error) {
		stray, err := c.modules.stray(ctx, programs)
		var deleted []digest.Digest
		for _, p := range stray {
			deleted = append(deleted, p.Digest)
		}
		return deleted, err
	})
}

// forget removes what is kept of the modules that choose returns. While it chooses, no image, root
// or hold can be added.
func (c *Collector) forget(ctx context.Context, choose func(programs map[digest.Digest]bool) ([]digest.Digest, error)) error {
	leaving, err := c.choose(choose)
	for d, done := range leaving {
		err := c.modules.Departed(ctx, d.String())
		c.modules.setKnown(d, false)
		if err == nil {
			err = c.modules.setPrepared(d, false)
		}
		done()
		if err != nil {
			c.logger.Warn("failed to remove compiled module, it stays until the next garbage collection", "module", d, "error", err)
		}
	}
	return err
}

func (c *Collector) choose(choose func(map[digest.Digest]bool) ([]digest.Digest, error)) (map[digest.Digest]func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	deleted, err := choose(programs(c.disk.DB.State(), c.disk.Layers.Roots()))
	leaving := make(map[digest.Digest]func())
	for _, d := range deleted {
		if done, ok := c.modules.leave(d); ok {
			leaving[d] = done
		}
	}
	return leaving, err
}

// isStray says whether nothing needs what is kept of a module. brought says that it came with an
// image: then it is removed with the last such image, not after a day.
func isStray(p Prepared, programs map[digest.Digest]bool, brought bool) bool {
	young := p.Running || time.Since(p.Used) < StrayAge
	return !programs[p.Digest] && (brought || !young)
}
