package retain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/singleflight"
	"github.com/sunaba-project/sunaba/images/store"
)

// Prepared is what is kept of one module beside the store: compiled code.
type Prepared struct {
	Digest digest.Digest
	Bytes  int64
	// Used is when it was made or taken last, to the hour.
	Used time.Time
	// Running says that a process has it in use.
	Running bool
}

// ModuleOptions say what happens to WebAssembly modules beside the store. See images.Options.
type ModuleOptions struct {
	Arrived  func(ctx context.Context, path, digest string) error
	Departed func(ctx context.Context, digest string) error
	Prepared func(ctx context.Context) ([]Prepared, error)
	Logger   *slog.Logger
}

// Modules has WebAssembly modules prepared when they are new in the store.
type Modules struct {
	ModuleOptions
	moduleUse
	db       *store.DB
	arrivals singleflight.Group[struct{}]

	mu    sync.Mutex
	known map[digest.Digest]bool // modules that Arrived has accepted
}

// NewModules returns the modules of an image store.
func NewModules(db *store.DB, o ModuleOptions) *Modules {
	return &Modules{ModuleOptions: o, db: db, known: make(map[digest.Digest]bool)}
}

// Wait returns when no module is being prepared. Call it after the last Arrive.
func (ms *Modules) Wait() { ms.arrivals.Wait() }

// Arrive passes a module to Arrived, once per content. started is called first if that takes long.
//
// # Errors
//
// Those of class ErrInvalidArgument. Others affect only the next start of the module, and are
// logged.
func (ms *Modules) Arrive(ctx context.Context, d digest.Digest, path string, started func()) error {
	if ms.Arrived == nil || ms.isKnown(d) {
		return nil
	}
	started()
	_, err := ms.arrivals.Do(ctx, d.String(), func(ctx context.Context) (struct{}, error) {
		if ms.isKnown(d) {
			return struct{}{}, nil
		}
		if err := ms.setPrepared(d, true); err != nil {
			return struct{}{}, err
		}
		err := ms.Arrived(ctx, path, d.String())
		if err != nil && (errdefs.IsInvalidArgument(err) || ctx.Err() != nil) {
			return struct{}{}, err
		}
		if err != nil {
			ms.Logger.Warn("failed to compile module ahead of its start", "module", d, "error", err)
		}
		ms.setKnown(d, true)
		return struct{}{}, nil
	})
	return err
}

func (ms *Modules) isKnown(d digest.Digest) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	known := ms.known[d]
	for _, img := range ms.db.State().Images {
		known = known || slices.Contains(img.Modules(), d)
	}
	return known
}

// left forgets the modules of images that are removed.
func (ms *Modules) left(images ...store.Image) {
	for _, img := range images {
		for _, d := range img.Modules() {
			ms.setKnown(d, false)
		}
	}
}

func (ms *Modules) setKnown(d digest.Digest, known bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if known {
		ms.known[d] = true
	} else {
		delete(ms.known, d)
	}
}

// setPrepared records whether compiled code may have to be removed with a module.
func (ms *Modules) setPrepared(d digest.Digest, is bool) error {
	err := ms.db.Update(func(tx *store.Tx) error { tx.SetPrepared(d, is); return nil })
	if err != nil {
		return fmt.Errorf("record module %s: %w", d, err)
	}
	return nil
}

// stray returns by digest the compiled code of unreferenced modules: no image, container or pull
// needs them, no process runs them, and they have not been used for a day. Modules that are being
// removed are included.
func (ms *Modules) stray(ctx context.Context, programs map[digest.Digest]bool) ([]Prepared, error) {
	if ms.Prepared == nil {
		return nil, nil
	}
	all, err := ms.Prepared(ctx)
	if err != nil {
		return nil, errors.Join(errors.New("find unreferenced compiled modules"), err)
	}
	brought := ms.db.State().Prepared
	return slices.DeleteFunc(all, func(p Prepared) bool {
		return ms.isHeld(p.Digest) || !isStray(p, programs, brought[p.Digest.String()])
	}), nil
}

// moduleUse tracks which modules running pulls use, and which are being removed.
type moduleUse struct {
	mu      sync.Mutex
	held    map[digest.Digest]int
	leaving map[digest.Digest]chan struct{}
}

// Hold prevents the removal of a module until release is called. If a removal is running, Hold
// waits until it ends.
func (u *moduleUse) Hold(ctx context.Context, d digest.Digest) (release func(), err error) {
	u.mu.Lock()
	for u.leaving[d] != nil {
		gone := u.leaving[d]
		u.mu.Unlock()
		select {
		case <-gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		u.mu.Lock()
	}
	defer u.mu.Unlock()
	if u.held == nil {
		u.held = make(map[digest.Digest]int)
	}
	u.held[d]++
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.held[d]--; u.held[d] == 0 {
			delete(u.held, d)
		}
	}), nil
}

// isHeld says whether a pull holds a module.
func (u *moduleUse) isHeld(d digest.Digest) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.held[d] > 0
}

// leave marks a module as being removed until done is called. It returns false if a pull holds it,
// or if it is being removed already.
func (u *moduleUse) leave(d digest.Digest) (done func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held[d] > 0 || u.leaving[d] != nil {
		return nil, false
	}
	if u.leaving == nil {
		u.leaving = make(map[digest.Digest]chan struct{})
	}
	gone := make(chan struct{})
	u.leaving[d] = gone
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.leaving, d)
		close(gone)
	}, true
}
