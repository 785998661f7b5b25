package task

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
)

// table has a service's containers by their ids, and the creations that are in progress.
type table struct {
	mu         sync.Mutex
	containers map[string]*container
	creations  map[string]*creation
}

type creation struct {
	cancel context.CancelFunc // nil unless the container's start follows at once
	ended  chan struct{}      // closed when the creation has ended
}

func (t *table) find(id string) (*container, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
}

// reserve takes an id for a creation, until settle. It waits for a creation of the same id that is
// in progress: its caller may have left, and it is undone then. cancel is for giveUp; it may be
// nil.
func (t *table) reserve(ctx context.Context, id string, cancel context.CancelFunc) error {
	for {
		if err := t.await(ctx, id); err != nil {
			return err
		}
		t.mu.Lock()
		taken, again := t.containers[id] != nil, t.creations[id] != nil
		if !taken && !again {
			t.creations[id] = &creation{cancel, make(chan struct{})}
		}
		t.mu.Unlock()
		switch {
		case taken:
			return fmt.Errorf("container %q: %w", id, errdefs.ErrAlreadyExists)
		case !again:
			return nil
		}
	}
}

// settle ends a creation; c is nil if there is no container.
func (t *table) settle(id string, c *container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c != nil {
		t.containers[id] = c
	}
	close(t.creations[id].ended)
	delete(t.creations, id)
}

// await waits until no creation of that id is in progress: it is known then whether there is such a
// container.
func (t *table) await(ctx context.Context, id string) error {
	t.mu.Lock()
	creation := t.creations[id]
	t.mu.Unlock()
	if creation == nil {
		return nil
	}
	select {
	case <-creation.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container %q is being created: %w", id, ctx.Err())
	}
}

// giveUp ends the creation of a container whose start was to follow at once, and returns when it
// has ended.
func (t *table) giveUp(ctx context.Context, id string) error {
	t.mu.Lock()
	creation := t.creations[id]
	t.mu.Unlock()
	if creation == nil || creation.cancel == nil {
		return nil
	}
	creation.cancel()
	return t.await(ctx, id)
}

// add adds a container that was adopted.
func (t *table) add(c *container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.containers[c.id] = c
}

func (t *table) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.containers, id)
}

// used says whether there are containers, or will be.
func (t *table) used() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.containers)+len(t.creations) > 0
}
