package state

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
)

// Names reserves the names of pods and containers, so that there is never a second object of one
// name.
//
// A name is taken for as long as one creating request runs and, if that succeeds, until its object
// is removed. A request that fails gives the name back: no name stays taken by something that does
// not exist. A client that gave up and asks again while its first request still runs joins it and
// gets the same answer.
type Names struct {
	mu      sync.Mutex
	taken   map[string]string // name → id
	running map[string]*creation
}

type creation struct {
	same string
	done chan struct{}
	id   string
	err  error
	gone []string // ids that were released meanwhile: their object was made and removed before the request ended
}

// NewNames returns an empty register.
func NewNames() *Names {
	return &Names{taken: map[string]string{}, running: map[string]*creation{}}
}

// Create runs create with the name reserved and keeps it for the id that create returns. same
// stands for the whole request: only a request with an equal one may join a running creation.
//
// # Errors
//
// ErrAlreadyExists naming the holder's id if the name is taken; else create's own.
func (n *Names) Create(ctx context.Context, name, same string, create func(context.Context) (string, error)) (string, error) {
	for {
		n.mu.Lock()
		if holder, ok := n.taken[name]; ok {
			n.mu.Unlock()
			return "", fmt.Errorf("name %q is reserved for %q, remove that first: %w", name, holder, errdefs.ErrAlreadyExists)
		}
		c, ok := n.running[name]
		if !ok {
			c = &creation{same: same, done: make(chan struct{})}
			n.running[name] = c
			n.mu.Unlock()
			return n.run(ctx, name, c, create)
		}
		n.mu.Unlock()
		if c.same != same {
			return "", fmt.Errorf("name %q is being created by another request: %w", name, errdefs.ErrAlreadyExists)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-c.done:
		}
		if errors.Is(c.err, context.Canceled) || errors.Is(c.err, context.DeadlineExceeded) {
			continue // the first request was given up by its client; this one was not
		}
		return c.id, c.err
	}
}

func (n *Names) run(ctx context.Context, name string, c *creation, create func(context.Context) (string, error)) (string, error) {
	c.err = errors.New("creation did not end") // stands only if create panics
	defer func() {
		n.mu.Lock()
		delete(n.running, name)
		if c.err == nil && !slices.Contains(c.gone, c.id) {
			n.taken[name] = c.id
		}
		n.mu.Unlock()
		close(c.done)
	}()
	c.id, c.err = create(ctx)
	return c.id, c.err
}

// Hold takes a name for an object that exists already, found at the start of the server. It reports
// whether the name was free; a second holder is left without it.
func (n *Names) Hold(name, id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if holder, ok := n.taken[name]; ok && holder != id {
		return false
	}
	n.taken[name] = id
	return true
}

// Release gives name back if id holds it, or will: an object may be removed before the request that
// made it has ended.
func (n *Names) Release(name, id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, ok := n.running[name]; ok {
		c.gone = append(c.gone, id)
	}
	if n.taken[name] == id {
		delete(n.taken, name)
	}
}

// NewID returns the id of a new pod or container: 64 hexadecimal digits.
func NewID() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// podDigits is how many digits of its pod's id a container's id ends in that was drawn ahead of its
// container.
const podDigits = 16

// DrawID returns an id for the next container of a pod. It is on no record, and may be the name of
// a cgroup already: so it tells whose it is, see IsDrawn.
func DrawID(pod string) string {
	id := NewID()
	return id[:len(id)-podDigits] + pod[:podDigits]
}

// IsDrawn says whether DrawID gave an id to a pod.
func IsDrawn(id, pod string) bool {
	return id != pod && len(id) == len(pod) && len(pod) >= podDigits && strings.HasSuffix(id, pod[:podDigits])
}
